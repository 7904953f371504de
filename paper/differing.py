"""By how much one way of stopping exceeds another, seed by seed.

What is read at two stops is compared for all seeds, and a remark names the way that never stopped; a distance between
two stops is counted only where both are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from heldin.lab.curves import Estimate, Group
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import Built
from paper.making import (
    PROTOCOLS,
    Row,
    answers,
    built_of,
    by_seed,
    mean_of,
    silences,
    some,
    stop_epochs,
    stop_numbers,
    together,
)


def difference(
    group: Group, key: str, ways: Mapping[str, StoppingMethod], metric: str, *, only_fired: bool = False
) -> Built:
    """By how much the first of two ways exceeds the second, seed by seed.

    Args:
        group: the runs of one setting.
        key: of the number.
        ways: two of them, by the names that remarks give them.
        metric: which one.
        only_fired: leave out seeds for which one of the two has a rule that never says stop.
    """
    if not answers(group, *ways.values()):
        return Built()
    return built_of((key, protocol, *_apart(group, ways, protocol, metric, only_fired)) for protocol in PROTOCOLS)


def best_difference(group: Group, key: str, ways: Mapping[str, Sequence[StoppingMethod]], metric: str) -> Built:
    """The same for the best of some ways and the best of others: those with the highest mean over the seeds."""
    if not answers(group, *(way for listed in ways.values() for way in listed)):
        return Built()
    rows: list[Row] = []
    for protocol in PROTOCOLS:
        best = {name: _best(group, listed, protocol, metric) for name, listed in ways.items()}
        rows.append((key, protocol, *_apart(group, best, protocol, metric)))
    return built_of(rows)


def _best(group: Group, ways: Sequence[StoppingMethod], protocol: str, metric: str) -> StoppingMethod:
    return max(ways, key=lambda way: mean_of([*by_seed(group, way, protocol, metric).values()]))


def _apart(
    group: Group, ways: Mapping[str, StoppingMethod], protocol: str, metric: str, only_fired: bool = False
) -> tuple[Estimate | None, str]:
    one, other = (by_seed(group, way, protocol, metric) for way in ways.values())
    seeds = one.keys() & other.keys()
    for way in ways.values() if only_fired else ():
        if way.rule is not None:
            fired = stop_epochs(group, way, protocol)
            seeds = {seed for seed in seeds if seed in fired or None in fired}
    return some([one[seed] - other[seed] for seed in sorted(seeds)]), silences(group, ways, protocol)


def epochs_apart(
    group: Group,
    key: str,
    ways: Mapping[str, StoppingMethod],
    of: Callable[[int], float] = float,
    *,
    verb: str = "stopped",
) -> Built:
    """By how many epochs the first of two ways stops after the second, over the runs in which both stop."""
    if not answers(group, *ways.values()):
        return Built()
    rows: list[Row] = []
    for protocol in PROTOCOLS:
        gaps = [float(of(gap)) for gap in gaps_between(group, [*ways.values()], protocol).values()]
        rows.append((key, protocol, some(gaps), silences(group, ways, protocol, verb)))
    return built_of(rows)


def gaps_between(group: Group, ways: Sequence[StoppingMethod], protocol: str) -> dict[int | None, int]:
    """How many epochs lie between the second of two stops and the first, where both are made."""
    one, other = (stop_epochs(group, way, protocol) for way in ways)
    return {seed: epoch - other[seed] for seed, epoch in one.items() if seed in other}


def drop_after(group: Group, way: StoppingMethod) -> Built:
    """Where a way stops, and by how much the test loss at the end is above that there, where it stops."""
    ends = {"the end": StoppingMethod(Kind.NEVER), "disparity": way}
    return together(stop_numbers(group, {"gd": way}, ()), difference(group, "drop", ends, "loss", only_fired=True))
