"""Figure opt: other optimizers."""

from heldin.lab.curves import curve_of, estimate, mean_curve
from heldin.lab.figures import CurvesDisplay
from heldin.lab.grouping import Group
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.tables import Table
from heldin.rules import NthRise, replay
from heldin.types import Direction
from paper.making import MEAN_CURVE, PER_RUN, Numbers, group_of
from paper.settings import DISPARITY, OPTIMIZERS, seconds_of

CURVES = {"gd": DISPARITY, "test": "test_loss"}


def build(runs: Runs) -> Built:
    """Where the 5th rise of disparity and of the test loss is, and what the test error is there."""
    figures, rows, numbers = {}, [], {}
    for panel, setting in OPTIMIZERS.items():
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        figures[panel] = CurvesDisplay(group.full, DISPARITY, ("test_loss",))
        found = _numbers(group, panel)
        numbers.update(found)
        shown = {
            f"{name}, {p}": found.get(f"{panel}.{name}.epoch", {}).get(p)
            for name in CURVES
            for p in (PER_RUN, MEAN_CURVE)
        }
        rows.append({"setting": setting.title, **shown})
    tables = {"opt": Table(tuple(rows[0]), tuple(rows), "Epoch of the 5th rise")} if rows else {}
    return Built(tables=tables, figures=figures, numbers=numbers)


def _numbers(group: Group, panel: str) -> Numbers:
    numbers: Numbers = {}
    places = {PER_RUN: [[record] for record in group.full], MEAN_CURVE: [list(group.full)]}
    for protocol, units in places.items():
        stops = {name: [_fifth_rise(unit, curve) for unit in units] for name, curve in CURVES.items()}
        for name, epochs in stops.items():
            if all(epoch is not None for epoch in epochs):
                numbers.setdefault(f"{panel}.{name}.epoch", {})[protocol] = estimate([float(e) for e in epochs])
                errors = [
                    r.epochs[min(e, len(r.epochs) - 1)]["test_error"]
                    for e, u in zip(epochs, units, strict=True)
                    for r in u
                ]
                numbers.setdefault(f"{panel}.{name}.error", {})[protocol] = estimate(
                    [100.0 * error for error in errors]
                )
        pairs = list(zip(stops["gd"], stops["test"], strict=True))
        if all(None not in pair for pair in pairs):
            apart = estimate([float(abs(one - other)) for one, other in pairs])
            numbers.setdefault(f"{panel}.apart", {})[protocol] = apart
    return numbers


def _fifth_rise(records: list, curve: str) -> int | None:
    values = mean_curve([curve_of(record, curve) for record in records])
    return replay(NthRise(), [value for value in values if value is not None], direction=Direction.RISES).epoch


ITEM = Item(
    label="fig:opt",
    claim="With SGD with momentum, Adagrad, Adadelta, RmsProp and Adam, too, gradient disparity rises for the 5th time "
    "about when the test loss does.",
    stage=3,
    specs=lambda profile: [spec for setting in OPTIMIZERS.values() for spec in setting.full(profile)],
    build=build,
    differs="1,280 samples instead of 12.8 k, width 1/8, 25 epochs; torch's own learning rates, for the paper "
    "gives none.",
    seconds=seconds_of,
)
