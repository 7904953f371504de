"""Differences between two stopping methods, seed by seed.

Metrics at two stops are compared for all seeds that both methods have, also where the mean curve over seeds decides,
and a remark names a method that never stopped; if no rule ever stops, there is only the remark. Epochs of two stops are
compared only for runs in which both methods stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from heldin.lab.curves import Estimate
from heldin.lab.methods import Kind, StoppingMethod
from paper.harness import MEAN_CURVE, PER_RUN, PROTOCOLS, Result, Row, RunGroup, merge
from paper.stops import (
    can_evaluate,
    estimate_or_none,
    mean,
    metric_by_seed,
    stop_epochs,
    stop_numbers,
    stop_remark,
    stop_remarks,
)


def metric_difference(
    group: RunGroup, key: str, methods: Mapping[str, StoppingMethod], metric: str, *, only_fired: bool = False
) -> Result:
    """Return a metric of the first of two methods minus that of the second, seed by seed.

    Args:
        group: The runs of one setting.
        key: The key of the number.
        methods: Two methods, by their names in remarks.
        metric: The name of the metric in claims.
        only_fired: Leave out seeds for which a rule of the two never fires.
    """
    if not can_evaluate(group, *methods.values()):
        return Result()
    group = _of_common_seeds(group, [*methods.values()])
    return Result.from_rows(
        (key, protocol, *_difference(group, methods, protocol, metric, only_fired)) for protocol in PROTOCOLS
    )


def best_difference(group: RunGroup, key: str, methods: Mapping[str, Mapping[str, Sequence[StoppingMethod]]]) -> Result:
    """Return the accuracy of the best of several methods minus that of the best of others, seed by seed.

    The best have the highest mean over the seeds. `methods` has the methods of each protocol by their names in remarks;
    those that stop in every run come before the others. A protocol without methods has no number.
    """
    rows: list[Row] = []
    for protocol, named in methods.items():
        everything = [method for listed in named.values() for method in listed]
        if all(named.values()) and can_evaluate(group, *everything):
            common = _of_common_seeds(group, everything)
            best = {name: _most_accurate(common, listed, protocol) for name, listed in named.items()}
            rows.append((key, protocol, *_difference(common, best, protocol, "accuracy")))
    return Result.from_rows(rows)


def _of_common_seeds(group: RunGroup, methods: Sequence[StoppingMethod]) -> RunGroup:
    """Return the runs of the seeds that all methods have: some may lack folds, or a signal."""
    seeds = set.intersection(*({s for each in group.outcome(m, PER_RUN).choices for s in each.seeds} for m in methods))
    return group.only(seeds) if seeds else group


def _most_accurate(group: RunGroup, methods: Sequence[StoppingMethod], protocol: str) -> StoppingMethod:
    fired = [method for method in methods if not stop_remark(group, method, protocol)]
    return max(fired or methods, key=lambda each: mean([*metric_by_seed(group, each, protocol, "accuracy").values()]))


def _difference(
    group: RunGroup, methods: Mapping[str, StoppingMethod], protocol: str, metric: str, only_fired: bool = False
) -> tuple[Estimate | None, str]:
    one, other = (metric_by_seed(group, method, protocol, metric) for method in methods.values())
    seeds = one.keys() & other.keys()
    for method in methods.values() if only_fired else ():
        if method.rule is not None:
            fired = stop_epochs(group, method, protocol)
            seeds = {seed for seed in seeds if seed in fired or None in fired}
    remark = stop_remarks(group, methods, protocol)
    outcomes = [group.outcome(method, protocol) for method in methods.values() if method.rule is not None]
    if outcomes and not any(each.num_fired for each in outcomes):
        return None, remark  # two last epochs say nothing about stopping
    found = estimate_or_none([one[seed] - other[seed] for seed in sorted(seeds)])
    if found is not None and protocol == MEAN_CURVE:
        parts = [group.only(seeds - {left_out}) for left_out in seeds]
        without = [_difference_of_means(part, [*methods.values()], metric) for part in parts if len(seeds) > 1]
        found = replace(found, std=jackknife_std(found.mean, without))
    return found, remark


def jackknife_std(value: float, without: Sequence[float | None]) -> float | None:
    """Return the spread of a number from mean curves, given the same numbers without one of the seeds each.

    All seeds share the stop of a mean curve, so a spread over seeds would leave out that another mean curve stops
    elsewhere. Divided by the root of the number of seeds it is the standard error of the jackknife. Deviations are from
    `value`, not from the mean of the others, since a single seed may move the stop far. None if it is not known: there
    is one seed only, or a rule does not stop without one of the seeds.
    """
    known = [each for each in without if each is not None]
    if not known or len(known) < len(without):
        return None
    return math.sqrt((len(known) - 1) * math.fsum((each - value) ** 2 for each in known))


def _difference_of_means(group: RunGroup, methods: Sequence[StoppingMethod], metric: str) -> float | None:
    """Return a metric of the first of two methods minus that of the second, at the stops of mean curves.

    None if a rule does not stop.
    """
    if any(method.rule is not None and not group.outcome(method, MEAN_CURVE).num_fired for method in methods):
        return None
    one, other = (metric_by_seed(group, method, MEAN_CURVE, metric) for method in methods)
    return mean([value - other[seed] for seed, value in one.items()])


def epoch_difference(
    group: RunGroup,
    key: str,
    methods: Mapping[str, StoppingMethod],
    convert: Callable[[int], float] = float,
    *,
    verb: str = "stopped",
) -> Result:
    """Return by how many epochs the first of two methods stops after the second, over runs in which both stop."""
    if not can_evaluate(group, *methods.values()):
        return Result()
    group = _of_common_seeds(group, [*methods.values()])
    rows: list[Row] = []
    for protocol in PROTOCOLS:
        gaps = [float(convert(gap)) for gap in epochs_between(group, [*methods.values()], protocol).values()]
        rows.append((key, protocol, estimate_or_none(gaps), stop_remarks(group, methods, protocol, verb)))
    return Result.from_rows(rows)


def epochs_between(group: RunGroup, methods: Sequence[StoppingMethod], protocol: str) -> dict[int | None, int]:
    """Return the number of epochs from the stop of the second method to that of the first, where both stop."""
    one, other = (stop_epochs(group, method, protocol) for method in methods)
    return {seed: epoch - other[seed] for seed, epoch in one.items() if seed in other}


def loss_after_stop(group: RunGroup, method: StoppingMethod) -> Result:
    """Return the stopping epoch, and the test loss at the last epoch minus that at the stop, where the rule fires."""
    methods = {"the end": StoppingMethod(Kind.NEVER), "disparity": method}
    drop = metric_difference(group, "drop", methods, "loss", only_fired=True)
    return merge(stop_numbers(group, {"gd": method}, ()), drop)
