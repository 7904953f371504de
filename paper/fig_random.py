"""Figure random: label noise on MNIST, AlexNet."""

from heldin.lab.reproducing import Item
from paper.series import levels
from paper.settings import NOISE_MNIST, seconds_of

ITEM = Item(
    label="fig:random",
    claim="On MNIST gradient disparity orders the levels of label noise from the first epochs on, where the "
    "generalization gap does not, and goes with the test error over all of them.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_MNIST.values() for spec in setting.full(profile)],
    build=lambda runs: levels(runs, "mnist", NOISE_MNIST, metrics=("test_error", "test_loss")),
    differs="2,000 samples instead of 12.8 k, width 1/4, batches of 32, 50 epochs.",
    seconds=seconds_of,
)
