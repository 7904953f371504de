"""Figure resnet_cifar100: label noise on CIFAR-100, ResNet-18."""

from heldin.lab.reproducing import Item
from paper.series import levels
from paper.settings import NOISE_CIFAR100, seconds_of

ITEM = Item(
    label="fig:resnet_cifar100",
    claim="On CIFAR-100, networks trained with more label noise have a lower test loss, and gradient disparity shows "
    "this trend too.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_CIFAR100.values() for spec in setting.full(profile)],
    build=lambda runs: levels(runs, "c100", NOISE_CIFAR100),
    differs="1,280 samples instead of 50,000, width 1/16, 25 epochs.",
    seconds=seconds_of,
)
