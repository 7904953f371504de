"""Figures width and width2: the width of the network."""

from paper.harness import Item, merge
from paper.settings import WIDTHS_FC, WIDTHS_RESNET, WIDTHS_VGG, full_runs, seconds_of
from paper.sweeps import final_value_sweep

SWEEPS = {"a": WIDTHS_RESNET, "b": WIDTHS_VGG, "c": WIDTHS_FC}
ITEM = Item(
    label="fig:width",
    other_labels=("fig:width2",),
    claim="Gradient disparity divided by the root of the number of parameters falls with the width of the network, as "
    "the test error does.",
    stage=3,
    specs=full_runs(setting for sweep in SWEEPS.values() for setting in sweep.values()),
    build=lambda runs: merge(
        *(final_value_sweep(runs, key, "scale", sweep, normalize=True) for key, sweep in SWEEPS.items())
    ),
    laptop="Scales 1/32 to 1/8 (ResNet-18), 1/16 to 1/4 (VGG-11) and 0.1 to 1 (fully connected) on 1,280 samples, 25 "
    "epochs, 60 for the fully connected network. The paper does not say which network each panel shows.",
    findings="Panel (a), ResNet-18 at widths of 1/32 to 1/8, shows the opposite: the widest of the three fits its "
    "1,280 samples within the run, and its disparity then rises. In (c) the test error does not change with the width.",
    seconds=seconds_of,
)
