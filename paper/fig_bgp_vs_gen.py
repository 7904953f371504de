"""Figure BGP_vs_gen: ResNet-18 on CIFAR-10."""

from heldin.lab.reproducing import Item
from paper.gap import beside_gap
from paper.settings import RIVALS_CIFAR10, seconds_of

ITEM = Item(
    label="fig:BGP_vs_gen",
    claim="For ResNet-18 on CIFAR-10, gradient disparity rises when training and test loss part.",
    stage=1,
    specs=lambda profile: RIVALS_CIFAR10.full(profile),
    build=lambda runs: beside_gap(runs, RIVALS_CIFAR10),
    differs="As tab:RW (c).",
    seconds=seconds_of,
)
