"""Figure resnet_cifar100: label noise on CIFAR-100, ResNet-18."""

from paper.correlations import difference_by_seed, last_by_seed, mean_across, mean_by_seed, trend, values_by_seed
from paper.harness import NO_PROTOCOL, Item, Result, Runs, merge
from paper.settings import NOISE_CIFAR100, full_runs, seconds_of
from paper.stops import estimate_or_none
from paper.sweeps import complete_sweep, noise_sweep

HIGH_ERROR = 0.9


def build(runs: Runs) -> Result:
    """The sweep over label noise, how high the test errors are, and how the generalization error grows."""
    groups = [*complete_sweep(runs, NOISE_CIFAR100).values()]
    sweep = noise_sweep(runs, "c100", NOISE_CIFAR100)
    if not groups:
        return sweep
    errors = [last_by_seed(group, "test_error") for group in groups]
    first = mean_across([mean_by_seed(group, "generalization_error", last=1) for group in groups])
    last = mean_across([last_by_seed(group, "generalization_error") for group in groups])
    above = [100.0 * (min(each) - HIGH_ERROR) for each in values_by_seed(errors).values()]
    numbers = {
        "c100.order.test_error": trend(errors),
        "c100.clean.error": {NO_PROTOCOL: estimate_or_none([100.0 * error for error in errors[0].values()])},
        "c100.lowest.error": {NO_PROTOCOL: estimate_or_none(above)},
        "c100.growth.gap": difference_by_seed(last, first),
    }
    return merge(sweep, Result.from_numbers(numbers))


ITEM = Item(
    label="fig:resnet_cifar100",
    claim="On CIFAR-100, networks trained with more label noise have a lower test loss and error, and gradient "
    "disparity shows this trend too.",
    stage=2,
    specs=full_runs(NOISE_CIFAR100.values()),
    build=build,
    laptop="Not run at laptop size: with half of the labels random, none of the candidates learns (see the item "
    "`choice`).",
    seconds=seconds_of,
)
