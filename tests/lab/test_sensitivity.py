"""Sensitivity to the threshold, against the paper's own tables."""

from __future__ import annotations

import math

import pytest

from heldin.errors import ArgumentError
from heldin.lab.grouping import groups
from heldin.lab.selection import Kind, Way
from heldin.lab.sensitivity import Spread, over_thresholds, sensitivity, spread, thresholds
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.rules import ConsecutiveRises, NthRise

WAY = Way(Kind.SIGNAL, "gradient_disparity", NthRise(5))

GD_EPOCHS = (17, 19, 22, 23, 24, 25, 26, 27, 28, 29, 17, 23, 24, 25, 26, 27, 28, 29, 30, 31)
GD_LOSS = {
    17: 4.27, 19: 4.19, 22: 4.14, 23: 4.13, 24: 4.06, 25: 4.12, 26: 4.07, 27: 4.06, 28: 4.04, 29: 4.04,
    30: 4.05, 31: 4.05,
}  # fmt: skip
CV_EPOCHS = (1, 2, 3, 12, 14, 17, 1, 2, 3, 45, 46, 314)  # t1_1 .. t1_6, t2_1 .. t2_6
CV_ACCURACY = (0.98, 0.98, 1.19, 6.73, 6.79, 7.46, 0.98, 0.98, 1.19, 9.50, 9.45, 9.51)

# mean and std over the thresholds in the seven settings, as the paper prints them
GD_TABLE = [(9.52, 0.98), (36.97, 1.27), (64.27, 22.38), (3.79, 0.75), (12.82, 1.76), (38.9, 2.98), (96.22, 1.81)]
CV_TABLE = [(4.64, 3.70), (31.05, 8.80), (62.63, 13.46), (1.60, 0.14), (10.19, 1.27), (36.89, 3.21), (96.33, 1.68)]


def record(curve, loss):
    lines = tuple(
        {"epoch": e, "test_loss": y, "test_error": y / 10.0, "signals": {"gradient_disparity": x}}
        for e, (x, y) in enumerate(zip(curve, loss, strict=True))
    )
    return RunRecord(RunSpec(signals=("gradient_disparity",)), lines, True)


def two_values(mean, std):
    return Spread("test_accuracy", (mean - std, mean + std), 0)


@pytest.mark.parametrize(("table", "printed"), [(GD_TABLE, 0.916), (CV_TABLE, 1.613)], ids=["GD", "CV"])
def test_the_papers_sensitivities_follow_from_its_tables(table, printed):
    assert sensitivity(two_values(mean, std) for mean, std in table) == pytest.approx(printed, abs=1.5e-3)


def test_the_papers_spread_of_gradient_disparity():
    rises = {17, 19, *range(22, 32)}
    steps = [1.0 if epoch in rises else -1.0 for epoch in range(1, 40)]
    curve = [sum(steps[:count], 0.0) for count in range(40)]
    (group,) = groups([record(curve, [GD_LOSS.get(epoch, 9.0) for epoch in range(40)])])
    outcomes = over_thresholds(group, WAY)
    assert tuple(outcome.choices[0].stopped for outcome in outcomes) == GD_EPOCHS
    found = spread(outcomes, "test_loss")
    assert (round(found.mean, 2), round(found.std, 2), found.best) == (4.1, 0.07, 4.04)
    assert spread(outcomes, "test_accuracy").best == 1.0 - 0.404


def test_the_papers_spread_of_cross_validation_is_over_the_first_six_patiences():
    epochs, accuracies = Spread("epoch", CV_EPOCHS, 0), Spread("test_accuracy", CV_ACCURACY, 0)
    assert (epochs.mean, epochs.std) == (pytest.approx(38.33, abs=0.01), pytest.approx(84.53, abs=0.01))
    assert (accuracies.mean, accuracies.std) == (pytest.approx(4.64, abs=0.01), pytest.approx(3.70, abs=0.01))


def test_thresholds_that_never_fire_count_with_the_last_epoch_or_not_at_all():
    (group,) = groups([record([1.0, 2.0, 1.0, 2.0], [4.0, 3.0, 2.0, 1.0])])
    outcomes = over_thresholds(group, WAY, patiences=(1, 2))  # t1 at 1 and 3, t2(1) at 1, t2(2) never
    assert spread(outcomes).values == (3.0, 1.0, 3.0, 1.0)
    fired = spread(outcomes, only_fired=True)
    assert (fired.values, fired.num_silent) == ((3.0, 1.0, 3.0), 1)
    assert math.isnan(spread(outcomes[3:], only_fired=True).relative)


def test_twenty_thresholds():
    assert len(thresholds()) == 20
    assert thresholds((1, 2)) == (NthRise(1), NthRise(2), ConsecutiveRises(1), ConsecutiveRises(2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [((2.0, 2.0), 0.0), ((0.0, 0.0), 0.0), ((1.0, 3.0), 0.5), ((-1.0, 1.0), math.nan), ((1.0, math.inf), math.nan)],
)
def test_what_a_setting_adds(values, expected):
    assert Spread("test_loss", values, 0).relative == pytest.approx(expected, nan_ok=True)


def test_what_cannot_be_varied_or_was_not_recorded_is_refused():
    (group,) = groups([record([1.0, 2.0], [1.0, 1.0])])
    with pytest.raises(ArgumentError, match="no threshold to vary"):
        over_thresholds(group, Way(Kind.NEVER))
    outcomes = over_thresholds(group, WAY, patiences=(1,))
    with pytest.raises(ArgumentError, match="no 'test_auc'"):
        spread(outcomes, "test_auc")
    with pytest.raises(ArgumentError, match="Did you mean 'test_loss'"):
        spread(outcomes, "tets_loss")
