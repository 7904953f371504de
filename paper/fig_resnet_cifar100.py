"""Figure resnet_cifar100: label noise on CIFAR-100, ResNet-18."""

from heldin.lab.reproducing import ANY, Built, Item, Runs
from paper.correlating import at_end, averaged, exceeding, mean_over, shared, trend
from paper.making import numbered, some, together
from paper.series import levels, whole
from paper.settings import NOISE_CIFAR100, seconds_of

HIGH = 0.9


def build(runs: Runs) -> Built:
    """What all levels of label noise share, how high the test errors are, and how the generalization error grows."""
    found = [*whole(runs, NOISE_CIFAR100).values()]
    built = levels(runs, "c100", NOISE_CIFAR100)
    if not found:
        return built
    errors = [at_end(group, "test_error") for group in found]
    begun = mean_over([averaged(group, "generalization_error", last=1) for group in found])
    ended = mean_over([at_end(group, "generalization_error") for group in found])
    numbers = {
        "c100.order.test_error": trend(errors),
        "c100.clean.error": {ANY: some([100.0 * error for error in errors[0].values()])},
        "c100.lowest.error": {ANY: some([100.0 * (min(each) - HIGH) for each in shared(errors).values()])},
        "c100.growth.gap": exceeding(ended, begun),
    }
    return together(built, numbered(numbers))


ITEM = Item(
    label="fig:resnet_cifar100",
    claim="On CIFAR-100, networks trained with more label noise have a lower test loss and error, and gradient "
    "disparity shows this trend too.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_CIFAR100.values() for spec in setting.full(profile)],
    build=build,
    differs="1,280 samples instead of 50,000, width 1/16, batches of 32, 25 epochs.",
    found="The other way round: with 1,280 samples more noise leaves fewer right labels to learn from, and test "
    "error and disparity rise with it, as they do on the other datasets.",
    seconds=seconds_of,
)
