"""Figure random: label noise on MNIST, AlexNet."""

from heldin.lab.reproducing import ANY, Built, Item, Runs
from paper.correlating import averaged, shared
from paper.making import numbered, some, together
from paper.series import levels, whole
from paper.settings import NOISE_MNIST, seconds_of


def build(runs: Runs) -> Built:
    """What all levels of label noise share, and how far the generalization error is from zero at the worst of them."""
    gaps = [averaged(group, "generalization_error") for group in whole(runs, NOISE_MNIST).values()]
    furthest = some([100.0 * max(map(abs, each)) for each in shared(gaps).values()])
    return together(
        levels(runs, "mnist", NOISE_MNIST, metrics=("test_error", "test_loss")),
        numbered({"mnist.gap.error": {ANY: furthest}}),
    )


ITEM = Item(
    label="fig:random",
    claim="On MNIST gradient disparity orders the levels of label noise from the first epochs on, where the "
    "generalization gap does not, and goes with the test error over all of them.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_MNIST.values() for spec in setting.full(profile)],
    build=build,
    differs="2,000 samples instead of 12.8 k, width 1/4, batches of 32, 50 epochs.",
    seconds=seconds_of,
)
