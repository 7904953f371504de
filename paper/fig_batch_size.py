"""Figures batch_size and batch_size2: the batch size."""

from paper.correlations import difference_by_seed, trend
from paper.harness import Item, Result, Runs, merge
from paper.settings import BATCHES_CIFAR100, BATCHES_RESNET, BATCHES_VGG, full_runs, seconds_of
from paper.sweeps import complete_sweep, final_value_sweep, last_disparity

SWEEPS = {"a": BATCHES_VGG, "b": BATCHES_RESNET, "c": BATCHES_CIFAR100}
VERY_LARGE = {"a": 512, "b": 512, "c": 256}
"""Batch sizes for which the paper says that disparity falls again."""


def build(runs: Runs) -> Result:
    """All sweeps, and for each whether disparity rises up to very large batches and falls from there."""
    numbers = {}
    for key, sweep in SWEEPS.items():
        disparity = {size: last_disparity(group) for size, group in complete_sweep(runs, sweep).items()}
        if not disparity:
            continue
        below = [values for size, values in disparity.items() if size < VERY_LARGE[key]]
        numbers[f"{key}.rise.disparity"] = trend(below)
        numbers[f"{key}.fall.disparity"] = difference_by_seed(disparity[VERY_LARGE[key]], below[-1])
    parts = [final_value_sweep(runs, key, "batch size", sweep) for key, sweep in SWEEPS.items()]
    return merge(*parts, Result.from_numbers(numbers))


ITEM = Item(
    label="fig:batch_size",
    other_labels=("fig:batch_size2",),
    claim="Gradient disparity and test error rise with the batch size, as long as batches are not very large.",
    stage=3,
    specs=full_runs(setting for sweep in SWEEPS.values() for setting in sweep.values()),
    build=build,
    laptop="One of the three sweeps. The paper does not name its networks; we use VGG-11 at width 1/8 on 2,560 "
    "samples for 25 epochs. Large batches take fewer steps, so these runs may not be trained as far.",
    findings="Disparity rises with the batch size up to 128, hardly to 256, and falls at 512. It does not follow the "
    "test error, which rises only from batches of 64 on.",
    seconds=seconds_of,
)
