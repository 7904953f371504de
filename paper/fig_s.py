"""Figure s: the number of batches that disparity is averaged over."""

import itertools
import statistics

from heldin.lab.curves import curve_of, has
from heldin.lab.methods import Kind, StoppingMethod
from heldin.rules import NthRise
from paper.correlations import difference_by_seed
from paper.differences import loss_after_stop
from paper.harness import NO_PROTOCOL, Item, Result, RunGroup, Runs, merge
from paper.plots import SettingCurvesDisplay
from paper.settings import BATCH_COUNTS, DISPARITY, RELATED_CIFAR10, full_runs, seconds_of
from paper.stops import estimate_or_none, group_of


def build(runs: Runs) -> Result:
    """The curves, the change of disparity from epoch to epoch for each s, and by how much it exceeds the next one."""
    group = group_of(runs, RELATED_CIFAR10)
    changes = {} if group is None else {num: _relative_changes(group, _label(num)) for num in BATCH_COUNTS}
    if group is None or not all(changes.values()):
        return Result()
    numbers = {f"jump.{num}": {NO_PROTOCOL: estimate_or_none([*found.values()])} for num, found in changes.items()}
    numbers |= {
        f"jump.{a}-{b}": difference_by_seed(changes[a], changes[b]) for a, b in itertools.pairwise(BATCH_COUNTS)
    }
    names = {f"{num} batches": _label(num) for num in BATCH_COUNTS}
    curves = SettingCurvesDisplay(dict.fromkeys(names, group), DISPARITY, RELATED_CIFAR10.title, names)
    stop = loss_after_stop(group, StoppingMethod(Kind.SIGNAL, DISPARITY, NthRise()))
    return merge(Result(figures={"s": curves}), Result.from_numbers(numbers), stop)


def _label(num: int) -> str:
    """Return the label of the disparity of `num` batches."""
    return DISPARITY if num == 5 else f"{DISPARITY}@s={num}"


def _relative_changes(group: RunGroup, name: str) -> dict[int, float]:
    """Return the median relative change from one epoch to the next, for each seed whose run recorded it."""
    found = {}
    for record in group.full:
        curve = [value for value in curve_of(record, name) if value]
        if has(record, name) and len(curve) > 1:
            found[record.spec.seed] = statistics.median(abs(b - a) / a for a, b in itertools.pairwise(curve))
    return found


ITEM = Item(
    label="fig:s",
    claim="Averaged over two batches, gradient disparity varies much; five are enough.",
    stage=3,
    specs=full_runs([RELATED_CIFAR10]),
    build=build,
    laptop="As tab:RW (c).",
    seconds=seconds_of,
)
