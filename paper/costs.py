"""The cost claims of the appendix on k-fold cross-validation."""

from heldin.lab.costs import PAPER_UNITS, UnitSeconds, epoch_cost, num_batches
from heldin.lab.curves import estimate
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.tables import Table
from paper.making import stops
from paper.settings import SEVEN, seconds_of


def build(runs: Runs) -> Built:
    """The ratios of t1 to t2, t3 and t4, and an epoch of k-fold over one of disparity, setting by setting."""
    rows, ratios, over = [], {"t2": [], "t3": [], "t4": []}, {}
    for setting in SEVEN:
        base = setting.base(runs.profile)
        wanted = {spec.id for spec in setting.full(runs.profile)}
        found = [units for run, units in runs.units.items() if run in wanted]
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
                "an epoch of k-fold over one of disparity": estimate(over[setting.key]),
                "the same with the paper's times": _ratio(setting, runs.profile, PAPER_UNITS),
            }
        )
    numbers = {name: {ANY: estimate(values)} for name, values in ratios.items() if values}
    numbers |= {f"{key}.cv/gd": {ANY: estimate(values)} for key, values in over.items()}
    numbers |= {f"{key}.cv/gd-1": {ANY: estimate([value - 1.0 for value in values])} for key, values in over.items()}
    tables = {"costs": Table(tuple(rows[0]), tuple(rows), "Seconds")} if rows else {}
    return Built(tables=tables, numbers=numbers)


def _ratio(setting, profile: str, units: UnitSeconds) -> float:
    base, ways = setting.base(profile), stops(setting, profile)
    batches = num_batches(base)
    one = epoch_cost(ways["gd"], batches, batch_size=base.batch_size).seconds(units)
    return setting.folds[profile] * epoch_cost(ways["cv"], batches).seconds(units) / one


ITEM = Item(
    label="costs",
    claim="A batch gradient takes 5.1 times as long as a distance, 100 times as long as a step and 3.4 times as long "
    "as an evaluation, so that an epoch of k-fold cross-validation takes far longer than one with disparity.",
    stage=1,
    specs=lambda profile: [spec for setting in SEVEN for spec in setting.full(profile)],
    build=build,
    differs="Times are those of one core and of narrow networks, not of a GPU. Only times measured beside other work "
    "are at hand; ratios suffer less from that than seconds do.",
    seconds=seconds_of,
)
