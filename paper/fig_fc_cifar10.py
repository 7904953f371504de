"""Figure fc_cifar10: label noise on CIFAR-10, four fully connected layers."""

from heldin.lab.reproducing import Item
from paper.series import levels
from paper.settings import NOISE_FC_CIFAR10, seconds_of

ITEM = Item(
    label="fig:fc_cifar10",
    claim="For a fully connected network on CIFAR-10, gradient disparity ranks the levels of label noise as the "
    "generalization gap does.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_FC_CIFAR10.values() for spec in setting.full(profile)],
    build=lambda runs: levels(runs, "fc_cifar10", NOISE_FC_CIFAR10),
    differs="2,560 samples instead of 50,000, 60 epochs; the network is the paper's.",
    seconds=seconds_of,
)
