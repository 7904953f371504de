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
        *(final_value_sweep(runs, key, "width", sweep, normalize=True) for key, sweep in SWEEPS.items())
    ),
    laptop="(a) ResNet-18 of width 1/16 to 1/4 on 2,560 samples, (b) VGG-8 of width 1/8 to 1/2 on 1,280 samples, (c) "
    "fully connected networks of width 0.1 to 1 on 2,560 samples. The paper does not say which network each panel "
    "shows.",
    findings="The test error falls with the width in all panels. Normalized disparity falls clearly in (b). In (a) "
    "it shows no trend, and that of (c) just exceeds its standard error: in both it is highest at the middle width.",
    seconds=seconds_of,
)
