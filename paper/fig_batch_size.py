"""Figures batch_size and batch_size2: the size of batches."""

from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import exceeding, trend
from paper.making import numbered, together
from paper.series import disparity_at_end, ends, whole
from paper.settings import BATCHES_CIFAR100, BATCHES_RESNET, BATCHES_VGG, seconds_of

SERIES = {"a": BATCHES_VGG, "b": BATCHES_RESNET, "c": BATCHES_CIFAR100}
VERY_LARGE = {"a": 512, "b": 512, "c": 256}
"""Batches for which the paper says that disparity falls again."""


def build(runs: Runs) -> Built:
    """All the series, and for each whether disparity rises up to very large batches, and falls from there."""
    numbers = {}
    for key, series in SERIES.items():
        disparity = {size: disparity_at_end(group) for size, group in whole(runs, series).items()}
        if not disparity:
            continue
        below = [values for size, values in disparity.items() if size < VERY_LARGE[key]]
        numbers[f"{key}.rise.disparity"] = trend(below)
        numbers[f"{key}.fall.disparity"] = exceeding(disparity[VERY_LARGE[key]], below[-1])
    parts = [ends(runs, key, "batch size", series) for key, series in SERIES.items()]
    return together(*parts, numbered(numbers))


ITEM = Item(
    label="fig:batch_size",
    also=("fig:batch_size2",),
    claim="Gradient disparity and test error rise with the batch size, as long as batches are not very large.",
    stage=3,
    specs=lambda profile: [
        s for series in SERIES.values() for setting in series.values() for s in setting.full(profile)
    ],
    build=build,
    differs="One series of the three: the paper does not name its networks, we take VGG-11 at width 1/8 on 2,560 "
    "samples, 25 epochs. So large batches take fewer steps, and may not have come as far.",
    seconds=seconds_of,
)
