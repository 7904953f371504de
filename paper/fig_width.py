"""Figures width and width2: the width of the network."""

from heldin.lab.reproducing import Item
from paper.making import together
from paper.series import ends
from paper.settings import WIDTHS_FC, WIDTHS_RESNET, WIDTHS_VGG, seconds_of

SERIES = {"a": WIDTHS_RESNET, "b": WIDTHS_VGG, "c": WIDTHS_FC}
ITEM = Item(
    label="fig:width",
    also=("fig:width2",),
    claim="Gradient disparity over the root of the number of parameters falls with the width of the network, as the "
    "test error does.",
    stage=3,
    specs=lambda profile: [
        s for series in SERIES.values() for setting in series.values() for s in setting.full(profile)
    ],
    build=lambda runs: together(*(ends(runs, key, "scale", series, normalize=True) for key, series in SERIES.items())),
    differs="Scales 1/32 to 1/8 (ResNet-18), 1/16 to 1/4 (VGG-11) and 0.1 to 1 (fully connected) on 1,280 samples, 25 "
    "epochs, 60 for the fully connected network. The paper does not say which network each panel has.",
    found="Panel (a), ResNet-18, goes the other way at these widths of 1/32 to 1/8: the widest of the three fits "
    "its 1,280 samples within the run, and its disparity then rises. In (c) the test error does not change "
    "with the width.",
    seconds=seconds_of,
)
