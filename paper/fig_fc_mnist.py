"""Figure fc_mnist: label noise on MNIST, four fully connected layers."""

from heldin.lab.reproducing import Item
from paper.series import levels
from paper.settings import NOISE_FC_MNIST, seconds_of

ITEM = Item(
    label="fig:fc_mnist",
    claim="For a fully connected network on MNIST, gradient disparity tells the levels of label noise apart from the "
    "beginning, and at the end it is the larger the more noise there is.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_FC_MNIST.values() for spec in setting.full(profile)],
    build=lambda runs: levels(runs, "fc_mnist", NOISE_FC_MNIST),
    differs="4,000 training samples instead of 60,000, 80 epochs; the network is the paper's.",
    seconds=seconds_of,
)
