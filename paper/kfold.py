"""What the tables of disparity against k-fold cross-validation share."""

from __future__ import annotations

from collections.abc import Sequence

from heldin.lab.curves import Estimate
from heldin.lab.figures import CurvesDisplay
from heldin.lab.grouping import Group
from heldin.lab.reproducing import Built, Runs
from paper.making import Numbers, correlations, difference, group_of, stop_numbers, stop_table, stops
from paper.settings import DISPARITY, Setting

METRICS = ("loss", "accuracy", "top5")


def compared(runs: Runs, settings: Sequence[Setting]) -> Built:
    """Tables of the ways of stopping, and our numbers for them; by how much disparity is ahead, seed by seed."""
    tables, numbers = {}, {}
    for setting in settings:
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        ways = stops(setting, runs.profile)
        tables[setting.key] = stop_table(setting, group, ways)
        numbers.update(stop_numbers(group, setting.key, ways, METRICS))
        for other in ("cv", "cv_plus"):
            for metric in METRICS[:2]:
                ahead: Numbers = {
                    f"{setting.key}.gd-{other}.{metric}": difference(group, ways["gd"], ways[other], metric)
                }
                numbers.update({key: value for key, value in ahead.items() if value})
    return Built(tables=tables, numbers=numbers)


def drawn(runs: Runs, settings: Sequence[Setting]) -> Built:
    """For each setting the validation loss of the folds and the disparity of the whole, with test losses and bars."""
    figures: dict[str, CurvesDisplay] = {}
    followed: Numbers = {}
    for setting in settings:
        group = group_of(runs, setting)
        if group is not None and group.folded:
            figures[f"{setting.key}-cv"] = CurvesDisplay(group.folded, "val_loss", ("test_loss",))
        if group is not None and group.full:
            metrics = ("test_loss", "generalization_loss")
            figures[f"{setting.key}-gd"] = CurvesDisplay(group.full, DISPARITY, metrics)
            followed[f"{setting.key}.rho.gd"] = correlations([group], DISPARITY, "test_loss")
            held_out = correlations([Group(group.setting, group.folded, ())], "val_loss", "test_loss")
            followed[f"{setting.key}.rho.val"] = held_out
            followed[f"{setting.key}.rho.gd-val"] = {
                protocol: Estimate(found.mean - held_out[protocol].mean, None, found.num)
                for protocol, found in followed[f"{setting.key}.rho.gd"].items()
                if protocol in held_out
            }
    return Built(figures=figures, numbers={key: value for key, value in followed.items() if value})
