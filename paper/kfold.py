"""What the tables of disparity against k-fold cross-validation share."""

from __future__ import annotations

from collections.abc import Sequence

from heldin.lab.curves import Estimate, Group, estimate
from heldin.lab.reproducing import Built, Runs
from paper.correlating import correlations, correlations_by_seed
from paper.differing import difference
from paper.making import (
    MEAN_CURVE,
    PER_RUN,
    curves,
    group_of,
    numbered,
    single,
    stop_numbers,
    stop_table,
    stops,
    together,
)
from paper.settings import DISPARITY, Setting

METRICS = ("loss", "accuracy", "top5")
NAMES = {"gd": "disparity", "cv": "k-fold", "cv_plus": "k+-fold"}


def compared(runs: Runs, settings: Sequence[Setting]) -> Built:
    """Tables of the ways of stopping, and our numbers for them; by how much disparity is ahead, seed by seed."""
    parts = []
    for setting in settings:
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        ways = stops(setting, runs.profile)
        parts += [
            Built(tables={setting.key: stop_table(setting, group, ways)}),
            stop_numbers(group, {f"{setting.key}.{name}": way for name, way in ways.items()}, METRICS),
        ]
        for other in ("cv", "cv_plus"):
            both = {NAMES[name]: ways[name] for name in ("gd", other)}
            parts += [difference(group, f"{setting.key}.gd-{other}.{metric}", both, metric) for metric in METRICS]
    return together(*parts)


def drawn(runs: Runs, settings: Sequence[Setting]) -> Built:
    """For each setting the validation loss of the folds and the disparity of the whole, with test losses and bars."""
    parts = []
    for setting in settings:
        group = group_of(runs, setting)
        if group is not None:
            parts += [
                curves(f"{setting.key}-cv", group.folded, "val_loss", ("test_loss",)),
                curves(f"{setting.key}-gd", group.full, DISPARITY, ("test_loss", "generalization_loss")),
                numbered(_followed(group, setting.key)),
            ]
    return together(*parts)


def _followed(group: Group, key: str) -> dict[str, dict[str, Estimate]]:
    """How disparity and the validation loss go with the test loss, and by how much disparity does so better."""
    pairs = {"gd": ([group.full], DISPARITY, "test_loss"), "val": ([group.folded], "val_loss", "test_loss")}
    over = {name: correlations(*pair) for name, pair in pairs.items()}
    gd, val = (correlations_by_seed(*pair) for pair in pairs.values())
    seeds = sorted(gd.keys() & val.keys())
    better = {PER_RUN: estimate([gd[seed] - val[seed] for seed in seeds])} if seeds else {}
    if all(MEAN_CURVE in found for found in over.values()):
        better[MEAN_CURVE] = single(over["gd"][MEAN_CURVE].mean - over["val"][MEAN_CURVE].mean)
    return {f"{key}.rho.{name}": found for name, found in over.items()} | {f"{key}.rho.gd-val": better}
