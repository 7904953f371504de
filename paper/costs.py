"""The cost claims of the appendix on k-fold cross-validation."""

from heldin.lab.costs import PAPER_UNITS, UnitSeconds, epoch_cost, num_batches
from heldin.lab.curves import estimate
from heldin.lab.tables import Table
from paper.harness import NO_PROTOCOL, Item, Result, Runs
from paper.settings import KFOLD_SETTINGS, Setting, full_runs, seconds_of
from paper.stops import stopping_methods


def build(runs: Runs) -> Result:
    """The ratios of t1 to t2, t3 and t4, and of an epoch of k-fold to one of disparity, for each setting."""
    rows, ratios, over = [], {"t2": [], "t3": [], "t4": []}, {}
    for setting in KFOLD_SETTINGS:
        base = setting.base(runs.profile)
        wanted = {spec.id for spec in setting.full(runs.profile)}
        found = [units for run, units in runs.unit_seconds.items() if run in wanted]
        if base is None or base.num_samples is None or not found:
            continue
        for units in found:
            for name, part in (("t2", units.distance), ("t3", units.optimizer_step), ("t4", units.batch_evaluation)):
                ratios[name].append(units.batch_gradient / part)
        over[setting.key] = [_ratio(setting, runs.profile, units) for units in found]
        rows.append(
            {
                "setting": setting.title,
                "t1, seconds": estimate([units.batch_gradient for units in found]),
                "t1 / t2": estimate([units.batch_gradient / units.distance for units in found]),
                "t1 / t3": estimate([units.batch_gradient / units.optimizer_step for units in found]),
                "t1 / t4": estimate([units.batch_gradient / units.batch_evaluation for units in found]),
                "epoch of k-fold / epoch of disparity": estimate(over[setting.key]),
                "the same with the paper's times": _ratio(setting, runs.profile, PAPER_UNITS),
            }
        )
    numbers = {name: {NO_PROTOCOL: estimate(values)} for name, values in ratios.items() if values}
    numbers |= {f"{key}.cv/gd": {NO_PROTOCOL: estimate(values)} for key, values in over.items()}
    numbers |= {
        f"{key}.cv/gd-1": {NO_PROTOCOL: estimate([value - 1.0 for value in values])} for key, values in over.items()
    }
    tables = {"costs": Table(tuple(rows[0]), tuple(rows), "Seconds")} if rows else {}
    return Result(tables=tables, numbers=numbers)


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
    laptop="Times are those of narrow networks on one core, not on a GPU. They were measured on a busy machine, which "
    "affects ratios less than seconds.",
    seconds=seconds_of,
)
