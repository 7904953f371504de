"""Figure resnet_cifar100: label noise on CIFAR-100, ResNet-18."""

from heldin.lab.curves import estimate
from heldin.lab.reproducing import ANY, Built, Item, Runs
from paper.making import at_end, trend
from paper.series import levels, together, whole
from paper.settings import NOISE_CIFAR100, seconds_of


def build(runs: Runs) -> Built:
    """What all levels of label noise share, the order of test errors, and the test error without noise, in percent."""
    errors = [(level, at_end(group, "test_error")) for level, group in whole(runs, NOISE_CIFAR100).items()]
    numbers = {}
    if errors:
        numbers["c100.order.test_error"] = trend(errors)
        numbers["c100.clean.error"] = {ANY: estimate([100.0 * error for error in errors[0][1].values()])}
    return together(
        levels(runs, "c100", NOISE_CIFAR100), Built(numbers={key: value for key, value in numbers.items() if value})
    )


ITEM = Item(
    label="fig:resnet_cifar100",
    claim="On CIFAR-100, networks trained with more label noise have a lower test loss and error, and gradient "
    "disparity shows this trend too.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_CIFAR100.values() for spec in setting.full(profile)],
    build=build,
    differs="1,280 samples instead of 50,000, width 1/16, batches of 32, 25 epochs.",
    seconds=seconds_of,
)
