"""Figure s: how many batches the disparity is averaged over."""

import itertools
import statistics

from heldin.lab.curves import curve_of, estimate, has
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.ways import Kind, Way
from heldin.rules import NthRise
from paper.displays import LevelsDisplay
from paper.making import difference, group_of, stop_numbers
from paper.settings import DISPARITY, PROBED_RESNET, PROBES, seconds_of


def label(num: int) -> str:
    """The disparity over so many batches."""
    return DISPARITY if num == 5 else f"{DISPARITY}@s={num}"


def build(runs: Runs) -> Built:
    """The curves, and how much the disparity jumps from one epoch to the next for each s."""
    group = group_of(runs, PROBED_RESNET)
    if group is None or not any(has(record, label(PROBES[0])) for record in group.full):
        return Built()
    jumps = {num: _jumps(group.full, label(num)) for num in PROBES}
    numbers = {f"jump.{num}": {ANY: estimate(values)} for num, values in jumps.items()}
    numbers["jump.2-5"] = {ANY: estimate([a - b for a, b in zip(jumps[2], jumps[5], strict=True)])}
    stop, end = Way(Kind.SIGNAL, DISPARITY, NthRise()), Way(Kind.NEVER)
    numbers |= {
        "gd.epoch": stop_numbers(group, "x", {"gd": stop}, ())["x.gd.epoch"],
        "drop": difference(group, end, stop, "loss"),
    }
    figures = {f"s{num}": LevelsDisplay({f"s = {num}": group}, label(num)) for num in PROBES}
    return Built(figures=figures, numbers=numbers)


def _jumps(records, name: str) -> list[float]:
    """The median relative change from one epoch to the next, for each run."""
    found = []
    for record in records:
        curve = [value for value in curve_of(record, name) if value]
        found.append(statistics.median(abs(b - a) / a for a, b in itertools.pairwise(curve)))
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
