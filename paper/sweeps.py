"""Results over a sweep of settings: label noise, size of the training set, batch size, width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from heldin.lab.registry import build_model
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table
from paper.correlations import correlation_across, correlations, last_by_seed, mean_by_seed, trend
from paper.harness import Numbers, Result, RunGroup, Runs, merge
from paper.network_names import scaled_title
from paper.plots import SettingCurvesDisplay, SweepDisplay
from paper.settings import DISPARITY, HERE, Setting
from paper.stops import estimate_or_none, full_group

FEW_EPOCHS = 10
"""The first, or the last, epochs that a value of a noisy curve is averaged over."""
CURVES = (
    "train_loss",
    "test_loss",
    "train_error",
    "test_error",
    "generalization_loss",
    "generalization_error",
    DISPARITY,
)


def sweep_groups(runs: Runs, sweep: Mapping[float, Setting]) -> dict[float, RunGroup]:
    """Return the finished runs of each setting of a sweep."""
    found = {value: full_group(runs, setting) for value, setting in sweep.items()}
    return {value: group for value, group in found.items() if group is not None}


def complete_sweep(runs: Runs, sweep: Mapping[float, Setting]) -> dict[float, RunGroup]:
    """Return the same, but nothing if a setting of the sweep has no finished run."""
    found = sweep_groups(runs, sweep)
    return found if len(found) == sum(setting.base(runs.profile) is not None for setting in sweep.values()) else {}


def noise_sweep(runs: Runs, key: str, sweep: Mapping[float, Setting], *, metrics: tuple[str, ...] = ()) -> Result:
    """Label noise: curves, correlations over all epochs and levels, and whether disparity orders the levels."""
    found, complete = sweep_groups(runs, sweep), list(complete_sweep(runs, sweep).values())
    titled = {noise_title(level): group for level, group in found.items()}
    title = sweep_title(runs.profile, sweep)
    figures = {f"{key}-{name}": SettingCurvesDisplay(titled, name, title) for name in CURVES} if found else {}
    numbers: Numbers = {}
    for metric in metrics:
        numbers[f"{key}.rho.{metric}"] = correlations([group.full for group in complete], DISPARITY, metric)
    numbers[f"{key}.order.early"] = trend([early_mean(group, DISPARITY) for group in complete])
    numbers[f"{key}.order.all"] = trend([mean_by_seed(group, DISPARITY) for group in complete])
    numbers[f"{key}.order.end"] = trend([late_mean(group, DISPARITY) for group in complete])
    numbers[f"{key}.order.test_loss"] = trend([last_by_seed(group, "test_loss") for group in complete])
    numbers[f"{key}.order.gap"] = trend([early_mean(group, "generalization_error") for group in complete])
    rows = tuple(
        {
            "label noise": f"{level:.0%}",
            "test error": estimate_or_none([*last_by_seed(group, "test_error").values()]),
            f"disparity, first {FEW_EPOCHS} epochs": estimate_or_none([*early_mean(group, DISPARITY).values()]),
            "disparity, all epochs": estimate_or_none([*mean_by_seed(group, DISPARITY).values()]),
            f"disparity, last {FEW_EPOCHS} epochs": estimate_or_none([*late_mean(group, DISPARITY).values()]),
        }
        for level, group in found.items()
    )
    tables = {key: Table(tuple(rows[0]), rows, key)} if rows else {}
    return merge(Result(tables=tables, figures=figures), Result.from_numbers(numbers))


def final_value_sweep(
    runs: Runs, key: str, parameter: str, sweep: Mapping[float, Setting], *, normalize: bool = False
) -> Result:
    """Disparity and test error at the end of training over a sweep: trends, and their correlation."""
    found, complete = sweep_groups(runs, sweep), complete_sweep(runs, sweep)
    disparity = {x: last_disparity(group, normalize=normalize) for x, group in found.items()}
    error = {x: last_by_seed(group, "test_error") for x, group in found.items()}
    loss = {x: last_by_seed(group, "test_loss") for x, group in found.items()}
    name = "normalized disparity" if normalize else "disparity"
    numbers = {
        f"{key}.rho.error": correlation_across([(disparity[x], error[x]) for x in complete]),
        f"{key}.rho.loss": correlation_across([(disparity[x], loss[x]) for x in complete]),
        f"{key}.trend.disparity": trend([disparity[x] for x in complete]),
        f"{key}.trend.error": trend([error[x] for x in complete]),
    }
    rows = tuple(
        {
            parameter: f"{x:g}",
            "test error": estimate_or_none([*error[x].values()]),
            "test loss": estimate_or_none([*loss[x].values()]),
            name: estimate_or_none([*disparity[x].values()]),
            "epochs": estimate_or_none([float(len(record.epochs)) for record in found[x].full]),
        }
        for x in found
    )
    tables = {key: Table(tuple(rows[0]), rows, key)} if rows else {}
    figure = final_value_figure(runs, parameter, {sweep_title(runs.profile, sweep): sweep}, normalize=normalize)
    return merge(Result(tables=tables, figures={key: figure} if found else {}), Result.from_numbers(numbers))


def final_value_figure(
    runs: Runs, parameter: str, sweeps: Mapping[str, Mapping[float, Setting]], *, normalize: bool = False
) -> SweepDisplay:
    """Draw disparity and test error at the end of training over one or more sweeps, by their titles."""
    groups = {title: found for title, sweep in sweeps.items() if (found := sweep_groups(runs, sweep))}
    points = {
        title: (
            {x: last_by_seed(group, "test_error") for x, group in found.items()},
            {x: last_disparity(group, normalize=normalize) for x, group in found.items()},
        )
        for title, found in groups.items()
    }
    names = "test error", "normalized disparity" if normalize else "disparity"
    return SweepDisplay(parameter, points, names, sweep_title(runs.profile, *sweeps.values()))


def sweep_title(profile: str, *sweeps: Mapping[float, Setting]) -> str:
    """Return the parts that the titles of all settings of these sweeps share, and the network if it is another one."""
    settings = [setting for sweep in sweeps for setting in sweep.values()]
    title = _shared(setting.title for setting in settings)
    network = _shared(scaled_title(spec) for setting in settings if (spec := setting.base(profile)) is not None)
    in_paper = {scaled_title(setting.paper) for setting in settings if setting.paper is not None}
    return title if network in {title.rpartition(", ")[2], *in_paper} else f"{title}{HERE}{network})"


def _shared(titles: Iterable[str]) -> str:
    """Return the parts that these titles share."""
    parts = zip(*(title.split(", ") for title in titles), strict=False)
    return ", ".join(part for part, *others in parts if {*others} <= {part})


def noise_title(level: float) -> str:
    """Return the title of a level of label noise."""
    return f"label noise {100 * level:.0f} %"


def early_mean(group: RunGroup, name: str) -> dict[int, float]:
    """Return the mean of a curve over the first epochs for each seed."""
    return mean_by_seed(group, name, last=FEW_EPOCHS)


def late_mean(group: RunGroup, name: str) -> dict[int, float]:
    """Return the mean of a curve over the last epochs for each seed."""
    return mean_by_seed(group, name, first=-FEW_EPOCHS)


def last_disparity(group: RunGroup, *, normalize: bool = False) -> dict[int, float]:
    """Return the last disparity of each seed; if normalized, divided by the root of the number of parameters."""
    divisor = math.sqrt(num_parameters(group.setting)) if normalize else 1.0
    return {seed: value / divisor for seed, value in last_by_seed(group, DISPARITY).items()}


def data_shape(spec: RunSpec) -> tuple[tuple[int, int, int], int]:
    """Return the shape of a sample and the number of classes of a dataset, by its name."""
    name = spec.dataset.removeprefix("npz:")
    if "mnist" in name:
        return (1, 28, 28), 2 if name == "breastmnist" else 10
    return (3, 32, 32), 100 if name.startswith("cifar100") else 10


@lru_cache
def num_parameters(spec: RunSpec) -> int:
    """Return the number of parameters of the network of a spec."""
    shape, classes = data_shape(spec)
    return sum(p.numel() for p in build_model(spec.model, shape, classes, scale=spec.scale).parameters())
