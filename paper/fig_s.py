"""Figure s: how many batches the disparity is averaged over."""

import itertools
import statistics

from heldin.lab.curves import Group, curve_of, has
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.rules import NthRise
from paper.correlating import exceeding
from paper.differing import drop_after
from paper.displays import LevelsDisplay
from paper.making import group_of, numbered, some, together
from paper.settings import DISPARITY, PROBED_RESNET, PROBES, seconds_of


def label(num: int) -> str:
    """The disparity over so many batches."""
    return DISPARITY if num == 5 else f"{DISPARITY}@s={num}"


def build(runs: Runs) -> Built:
    """The curves, how much disparity jumps from epoch to epoch for each s, and how much more than for the next one."""
    group = group_of(runs, PROBED_RESNET)
    jumps = {} if group is None else {num: _jumps(group, label(num)) for num in PROBES}
    if group is None or not all(jumps.values()):
        return Built()
    numbers = {f"jump.{num}": {ANY: some([*found.values()])} for num, found in jumps.items()}
    numbers |= {f"jump.{a}-{b}": exceeding(jumps[a], jumps[b]) for a, b in itertools.pairwise(PROBES)}
    figures = {f"s{num}": LevelsDisplay({f"s = {num}": group}, label(num)) for num in PROBES}
    stop = drop_after(group, StoppingMethod(Kind.SIGNAL, DISPARITY, NthRise()))
    return together(Built(figures=figures), numbered(numbers), stop)


def _jumps(group: Group, name: str) -> dict[int, float]:
    """The median relative change from one epoch to the next, for each seed whose run recorded it."""
    found = {}
    for record in group.full:
        curve = [value for value in curve_of(record, name) if value]
        if has(record, name) and len(curve) > 1:
            found[record.spec.seed] = statistics.median(abs(b - a) / a for a, b in itertools.pairwise(curve))
    return found


ITEM = Item(
    label="fig:s",
    claim="Averaged over two batches gradient disparity varies much; five are enough.",
    stage=3,
    specs=lambda profile: PROBED_RESNET.full(profile),
    build=build,
    differs="2,560 samples instead of 12.8 k, width 1/16, 25 epochs.",
    seconds=seconds_of,
)
