"""What the figures over a series of settings share: label noise, the size of the training set, batches, widths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from heldin.lab.curves import Group
from heldin.lab.models.building import build
from heldin.lab.reproducing import Built, Runs
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table
from paper.correlating import across, at_end, averaged, correlations, trend
from paper.displays import LevelsDisplay, SeriesDisplay
from paper.making import Numbers, group_of, numbered, some, together
from paper.settings import DISPARITY, Setting

EARLY = 10  # epochs that count as an early stage of training


def groups_of(runs: Runs, series: Mapping[float, Setting]) -> dict[float, Group]:
    """The finished runs on all the data of each setting of a series."""
    found = {place: group_of(runs, setting) for place, setting in series.items()}
    return {place: group for place, group in found.items() if group is not None and group.full}


def whole(runs: Runs, series: Mapping[float, Setting]) -> dict[float, Group]:
    """The same, but nothing where a setting of the series is still missing."""
    found = groups_of(runs, series)
    return found if len(found) == sum(setting.base(runs.profile) is not None for setting in series.values()) else {}


def levels(runs: Runs, key: str, series: Mapping[float, Setting], *, metrics: tuple[str, ...] = ()) -> Built:
    """Label noise: curves, correlations over all epochs and levels, and whether the disparity orders the levels."""
    found, all_of = groups_of(runs, series), whole(runs, series)
    titled = {f"{level:.0%}": group for level, group in found.items()}
    names = (
        "train_loss",
        "test_loss",
        "train_error",
        "test_error",
        "generalization_loss",
        "generalization_error",
        DISPARITY,
    )
    figures = {f"{key}-{name}": LevelsDisplay(titled, name) for name in names} if found else {}
    listed = list(all_of.values())
    numbers: Numbers = {}
    for metric in metrics:
        numbers[f"{key}.rho.{metric}"] = correlations([group.full for group in listed], DISPARITY, metric)
    numbers[f"{key}.order.early"] = trend([early(group, DISPARITY) for group in listed])
    numbers[f"{key}.order.all"] = trend([averaged(group, DISPARITY) for group in listed])
    numbers[f"{key}.order.end"] = trend([at_end(group, DISPARITY) for group in listed])
    numbers[f"{key}.order.test_loss"] = trend([at_end(group, "test_loss") for group in listed])
    numbers[f"{key}.order.gap"] = trend([early(group, "generalization_error") for group in listed])
    rows = tuple(
        {
            "label noise": f"{level:.0%}",
            "test error": some([*at_end(group, "test_error").values()]),
            "disparity, first epochs": some([*early(group, DISPARITY).values()]),
            "disparity, all epochs": some([*averaged(group, DISPARITY).values()]),
            "disparity, last epoch": some([*at_end(group, DISPARITY).values()]),
        }
        for level, group in found.items()
    )
    tables = {key: Table(tuple(rows[0]), rows, key)} if rows else {}
    return together(Built(tables=tables, figures=figures), numbered(numbers))


def ends(runs: Runs, key: str, along: str, series: Mapping[float, Setting], *, normalize: bool = False) -> Built:
    """Disparity and test error at the end of training over a series: trends, and their correlation."""
    found, all_of = groups_of(runs, series), whole(runs, series)
    disparity = {x: disparity_at_end(group, normalize=normalize) for x, group in found.items()}
    error = {x: at_end(group, "test_error") for x, group in found.items()}
    loss = {x: at_end(group, "test_loss") for x, group in found.items()}
    name = "normalized disparity" if normalize else "disparity"
    numbers: Numbers = {}
    numbers[f"{key}.rho.error"] = across([(disparity[x], error[x]) for x in all_of])
    numbers[f"{key}.rho.loss"] = across([(disparity[x], loss[x]) for x in all_of])
    numbers[f"{key}.trend.disparity"] = trend([disparity[x] for x in all_of])
    numbers[f"{key}.trend.error"] = trend([error[x] for x in all_of])
    display = SeriesDisplay(along, error, disparity, ("test error", name))
    rows = tuple(
        {
            along: f"{x:g}",
            "test error": some([*error[x].values()]),
            "test loss": some([*loss[x].values()]),
            name: some([*disparity[x].values()]),
            "epochs": some([float(len(record.epochs)) for record in found[x].full]),
        }
        for x in found
    )
    tables = {key: Table(tuple(rows[0]), rows, key)} if rows else {}
    figures = {key: display} if found else {}
    return together(Built(tables=tables, figures=figures), numbered(numbers))


def early(group: Group, name: str) -> dict[int, float]:
    """The mean of a curve over the first epochs, for each seed."""
    return averaged(group, name, last=EARLY)


def disparity_at_end(group: Group, *, normalize: bool = False) -> dict[int, float]:
    """The last disparity of each seed; over the root of the number of parameters where networks differ in size."""
    divisor = math.sqrt(num_parameters(group.setting)) if normalize else 1.0
    return {seed: value / divisor for seed, value in at_end(group, DISPARITY).items()}


def shape_of(spec: RunSpec) -> tuple[tuple[int, int, int], int]:
    """Shape of a sample and number of classes, by the name of the dataset alone."""
    name = spec.dataset.removeprefix("npz:")
    if "mnist" in name:
        return (1, 28, 28), 2 if name == "breastmnist" else 10
    return (3, 32, 32), 100 if name.startswith("cifar100") else 10


@lru_cache
def num_parameters(spec: RunSpec) -> int:
    """How many parameters the network of a spec has."""
    shape, classes = shape_of(spec)
    return sum(p.numel() for p in build(spec.model, shape, classes, scale=spec.scale).parameters())
