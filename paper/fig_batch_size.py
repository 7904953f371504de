"""Figures batch_size and batch_size2: the size of batches."""

from heldin.lab.reproducing import Item
from paper.series import ends, together
from paper.settings import BATCHES_CIFAR100, BATCHES_RESNET, BATCHES_VGG, seconds_of

SERIES = {"a": BATCHES_VGG, "b": BATCHES_RESNET, "c": BATCHES_CIFAR100}
ITEM = Item(
    label="fig:batch_size",
    also=("fig:batch_size2",),
    claim="Gradient disparity and test error rise with the batch size, as long as batches are not very large.",
    stage=3,
    specs=lambda profile: [
        s for series in SERIES.values() for setting in series.values() for s in setting.full(profile)
    ],
    build=lambda runs: together(*(ends(runs, key, "batch size", series) for key, series in SERIES.items())),
    differs="One series of the three: the paper does not name its networks, we take VGG-11 at width 1/8 on 2,560 "
    "samples, 25 epochs. So large batches take fewer steps, and may not have come as far.",
    seconds=seconds_of,
)
