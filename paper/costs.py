"""The cost claims of the appendix on k-fold cross-validation."""

from collections.abc import Sequence
from statistics import median

from heldin.lab.costs import PAPER_UNITS, UnitSeconds, epoch_cost, num_batches
from heldin.lab.curves import estimate
from heldin.lab.tables import Table
from paper.harness import NO_PROTOCOL, Item, Result, Runs
from paper.settings import KFOLD_SETTINGS, Setting, full_runs, seconds_of
from paper.stops import stopping_methods


def build(runs: Runs) -> Result:
    """The ratios of t1 to t2, t3 and t4, and of an epoch of k-fold to one of disparity, for each setting.

    The ratios of a setting are medians over its runs, some of which were interrupted by other processes.
    """
    rows, over = [], {}
    medians: dict[str, list[float]] = {"t2": [], "t3": [], "t4": []}
    for setting in KFOLD_SETTINGS:
        base = setting.base(runs.profile)
        wanted = {spec.id for spec in setting.full(runs.profile)}
        found = [units for run, units in runs.unit_seconds.items() if run in wanted]
        if base is None or base.num_samples is None or not found:
            continue
        ratios = _ratios(found)
        for name, values in ratios.items():
            medians[name].append(median(values))
        over[setting.key] = [_ratio(setting, runs.profile, units) for units in found]
        rows.append(
            {
                "setting": setting.title,
                "runs": len(found),
                "t1, seconds": median(units.batch_gradient for units in found),
                **{f"t1 / {name}": median(values) for name, values in ratios.items()},
                "epoch of k-fold / epoch of disparity": estimate(over[setting.key]),
                "the same with the paper's times": _ratio(setting, runs.profile, PAPER_UNITS),
            }
        )
    numbers = {name: {NO_PROTOCOL: estimate(values)} for name, values in medians.items() if values}
    numbers |= {f"{key}.cv/gd": {NO_PROTOCOL: estimate(values)} for key, values in over.items()}
    numbers |= {
        f"{key}.cv/gd-1": {NO_PROTOCOL: estimate([value - 1.0 for value in values])} for key, values in over.items()
    }
    tables = {"costs": Table(tuple(rows[0]), tuple(rows), "Medians over runs")} if rows else {}
    return Result(tables=tables, numbers=numbers)


def _ratios(found: Sequence[UnitSeconds]) -> dict[str, list[float]]:
    """The ratios of t1 to the other times, for each run."""
    return {
        "t2": [units.batch_gradient / units.distance for units in found],
        "t3": [units.batch_gradient / units.optimizer_step for units in found],
        "t4": [units.batch_gradient / units.batch_evaluation for units in found],
    }


def _ratio(setting: Setting, profile: str, units: UnitSeconds) -> float:
    base, methods = setting.base(profile), stopping_methods(setting, profile)
    batches = num_batches(base)
    one = units.seconds(epoch_cost(methods["gd"], batches, batch_size=base.batch_size))
    return setting.folds[profile] * units.seconds(epoch_cost(methods["cv"], batches)) / one


ITEM = Item(
    label="costs",
    claim="A batch gradient takes 5.1 times as long as a distance, 100 times as long as a step and 3.4 times as long "
    "as an evaluation, so an epoch of k-fold cross-validation takes far longer than one with disparity.",
    stage=1,
    specs=full_runs(KFOLD_SETTINGS),
    build=build,
    laptop="Times are those of narrow networks on one core, not on a GPU. They were measured on a busy machine. Here "
    "t1 to t4 are the paper's names of times (a batch gradient, a distance, a step, an evaluation), not thresholds. "
    "Their ratios are means over the settings, each with the median of its runs.",
    at_paper_size="On one core, not on a GPU. Here t1 to t4 are the paper's names of times, not thresholds. t1 / t2 "
    "and t1 / t3 depend on the network: an optimizer step and a distance take the longer the more parameters there are "
    "(AlexNet has 20 million, VGG-13 half of that), a batch gradient the longer the more multiplications there are "
    "(fewer with AlexNet, which halves the images twice).",
    seconds=seconds_of,
)
