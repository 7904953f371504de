"""Which epoch each stopping method would have chosen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.curves import groups
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.select import DecisionGroup, Protocol, decision_groups, merge_seeds, outcomes_of, select
from heldin.lab.spec import RunSpec
from heldin.rules import ConsecutiveRises, FirstMinimum, NthRise, Patience

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=400, signals=("gradient_disparity",))
nan, inf = math.nan, math.inf


def record(loss, *, error=None, signals=None, val=None, **changes):
    """A run with these curves; the signals are those of the spec."""
    signals = signals or {}
    spec = SPEC.with_(signals=tuple(signals), **changes)
    return record_of(spec, test_loss=loss, test_error=error or loss, val_loss=val, **signals)


def disparity(curve, loss=None, **changes):
    return record(loss or [1.0] * len(curve), signals={"gradient_disparity": curve}, **changes)


def rising_at(epochs, horizon):
    """A curve that rises at these epochs and falls at all others."""
    steps = [1.0 if epoch in epochs else -1.0 for epoch in range(1, horizon)]
    return [sum(steps[:count], 0.0) for count in range(horizon)]


def by(rule, signal="gradient_disparity"):
    return StoppingMethod(Kind.SIGNAL, signal, rule)


FOLD0, FOLD1 = (1.0, 0.8, 0.9, 1.0), (1.2, 1.0, 0.8, 1.1)


@pytest.fixture
def two_folds():
    """The worked example: two folds, and a run on all the data."""
    full = record([2.0, 1.0, 1.5, 1.75], error=[0.5, 0.5, 0.25, 0.375], signals={"gradient_disparity": [1, 2, 3, 4]})
    return group_of(
        full,
        record([3.0, 2.0, 1.0, 4.0], val=FOLD0, fold=0, folds=2),
        record([5.0, 3.0, 4.0, 2.0], val=FOLD1, fold=1, folds=2),
    )


GD = {17, 19, *range(22, 32)}
GD_T1, GD_T2 = [17, 19, 22, 23, 24, 25, 26, 27, 28, 29], [17, 23, 24, 25, 26, 27, 28, 29, 30, 31]
CV = {1, 2, 3, 12, 14, 17, 18, 21, 22, 24, *range(42, 47), *range(309, 315)}
CV_T1, CV_T2 = [1, 2, 3, 12, 14, 17, 18, 21, 22, 24], [1, 2, 3, 45, 46, 314, None, None, None, None]


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize(("rises", "t1", "t2"), [(GD, GD_T1, GD_T2), (CV, CV_T1, CV_T2)], ids=["GD", "CV"])
def test_the_papers_stopping_epochs(rises, t1, t2, protocol):
    group = group_of(disparity(rising_at(rises, 400)))
    for rule, expected in ((NthRise, t1), (ConsecutiveRises, t2)):
        found = [select(group, by(rule(patience)), protocol).choices[0].stopped for patience in range(1, 11)]
        assert found == expected


def test_a_rule_that_never_fires_uses_the_last_epoch_and_has_a_note():
    group = group_of(disparity([3.0, 2.0, 1.0], [1.0, 0.5, 0.75]))
    outcome = select(group, by(NthRise(1)))
    assert outcome.choices[0].stopped is None
    assert (outcome.epoch.mean, outcome.num_fired) == (2.0, 0)
    assert outcome.metrics["test_loss"].mean == 0.75
    assert outcome.regret["test_loss"].mean == 0.25
    assert outcome.notes == ("t1(1) never fired, so the last epoch is used",)


def test_per_run_chooses_by_seed_and_mean_curve_for_all_seeds():
    early = disparity([1.0, 4.0, 3.0, 2.0], [4.0, 2.0, 3.0, 8.0])
    late = disparity([9.0, 5.0, 4.0, 6.0], [8.0, 6.0, 3.0, 4.0], seed=1)
    group = group_of(early, late)
    each = select(group, by(NthRise(1)), "per_run")
    assert [choice.stopped for choice in each.choices] == [1, 3]
    assert (each.epoch.mean, each.metrics["test_loss"].mean) == (2.0, 3.0)
    assert each.metrics["test_loss"].std == pytest.approx(math.sqrt(2.0))
    assert [choice.regret["test_loss"] for choice in each.choices] == [0.0, 1.0]
    together = select(group, by(NthRise(1)), "mean_curve")  # mean curve 5, 4.5, 3.5, 4
    assert [choice.stopped for choice in together.choices] == [3]
    assert together.metrics["test_loss"].mean == 6.0
    assert together.metrics["test_loss"].std == pytest.approx(math.sqrt(8.0))
    assert together.regret["test_loss"].mean == 3.0  # best mean is 3, at epoch 2
    assert together.choices[0].runs == (early.id, late.id)


def test_falling_signals_stop_on_falls():
    group = group_of(record([1.0] * 4, signals={"cosine": [0.1, 0.2, 0.3, 0.25]}))
    assert select(group, by(NthRise(1), "cosine")).choices[0].stopped == 3


def test_epochs_without_a_value_are_counted():
    group = group_of(record([1.0] * 5, signals={"label_wave": [None, 3.0, 1.0, 2.0, 2.0]}))
    assert select(group, by(NthRise(1), "label_wave")).choices[0].stopped == 3


def test_roll_back_evaluates_the_best_epoch():
    curve = [None, 3.0, 1.0, 1.0, 3.0, 3.0]  # Label Wave's worked example: halts at 5, returns epoch 3
    group = group_of(record([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], signals={"label_wave": curve}))
    rule = FirstMinimum(window=2, patience=2)
    kept = select(group, StoppingMethod(Kind.SIGNAL, "label_wave", rule, roll_back=True)).choices[0]
    assert (kept.stopped, kept.epoch, kept.metrics["test_loss"], kept.trained) == (5, 3, 3.0, 6)
    assert select(group, StoppingMethod(Kind.SIGNAL, "label_wave", rule)).choices[0].epoch == 5


@pytest.mark.parametrize("protocol", Protocol)
def test_k_fold_stops_on_the_mean_validation_curve(two_folds, protocol):
    outcome = select(two_folds, StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=2), protocol)
    assert [choice.stopped for choice in outcome.choices] == [3]
    assert outcome.metrics["test_loss"].mean == 3.0  # of 4 and 2
    assert outcome.regret["test_loss"].mean == 0.5  # best mean is 2.5, at epochs 1 and 2
    assert outcome.choices[0].trained == 8


@pytest.mark.parametrize("protocol", Protocol)
def test_k_fold_with_each_fold_by_itself(two_folds, protocol):
    outcome = select(two_folds, StoppingMethod(Kind.KFOLD_EACH, rule=NthRise(1), folds=2), protocol)
    assert [choice.stopped for choice in outcome.choices] == [2, 3]
    assert outcome.metrics["test_loss"].mean == 1.5  # of 1 and 2
    assert outcome.choices[0].trained == 3


@pytest.mark.parametrize("protocol", Protocol)
def test_k_plus_fold_evaluates_the_run_on_all_the_data(two_folds, protocol):
    outcome = select(two_folds, StoppingMethod(Kind.KPLUS, rule=NthRise(1), folds=2), protocol)
    (choice,) = outcome.choices
    assert (choice.stopped, choice.metrics["test_loss"]) == (3, 1.75)
    assert choice.runs == (two_folds.full[0].id,)
    assert (choice.trained, choice.retrained) == (8, 4)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_fixed_fraction_held_out_is_the_first_fold(two_folds, protocol):
    (choice,) = select(two_folds, StoppingMethod(Kind.HOLDOUT, rule=NthRise(1), folds=2), protocol).choices
    assert (choice.stopped, choice.metrics["test_loss"]) == (2, 1.0)


@pytest.mark.parametrize("protocol", Protocol)
def test_baselines(two_folds, protocol):
    found = {
        kind: select(two_folds, StoppingMethod(kind), protocol)
        for kind in (Kind.ORACLE_LOSS, Kind.ORACLE_ERROR, Kind.NEVER)
    }
    assert [found[kind].epoch.mean for kind in found] == [1.0, 2.0, 3.0]
    assert found[Kind.ORACLE_LOSS].regret["test_loss"].mean == 0.0
    assert found[Kind.ORACLE_LOSS].regret["test_error"].mean == 0.25
    assert found[Kind.ORACLE_ERROR].regret["test_error"].mean == 0.0
    assert found[Kind.NEVER].notes == ()


def test_k_plus_fold_uses_the_seeds_with_both_kinds_of_runs():
    folds = [record([1.0, 2.0], val=[1.0, 2.0], fold=i, folds=2, seed=s) for i in (0, 1) for s in (0, 1)]
    group = group_of(*folds, record([3.0, 4.0], seed=1), record([5.0, 6.0], seed=2))
    outcome = select(group, StoppingMethod(Kind.KPLUS, rule=NthRise(1), folds=2), "mean_curve")
    assert outcome.seeds == (1,)
    assert outcome.metrics["test_loss"].mean == 4.0


def test_the_spread_is_over_seeds_under_both_protocols():
    losses = [(1.0, 3.0), (5.0, 7.0)]  # of the two folds of two seeds
    records = [record([9.0, losses[s][i]], val=[1.0, 2.0], fold=i, folds=2, seed=s) for i in (0, 1) for s in (0, 1)]
    (group,) = groups(records)
    method = StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=2)
    each, together = (select(group, method, protocol).metrics["test_loss"] for protocol in Protocol)
    assert (each.mean, each.num, each.std) == (4.0, 2, pytest.approx(math.sqrt(8.0)))
    assert together == each  # both are read at epoch 1


def test_runs_of_different_length():
    short = disparity([3.0, 2.0], [2.0, 1.0])
    long = disparity([5.0, 4.0, 5.0, 6.0], [4.0, 3.0, 5.0, 7.0], seed=1)
    group = group_of(short, long)
    outcome = select(group, by(NthRise(1)), "mean_curve")  # mean curve 4, 3, 5, 6
    assert outcome.choices[0].stopped == 2
    assert outcome.choices[0].by_seed["test_loss"] == {0: 1.0, 1: 5.0}
    assert outcome.choices[0].trained == 5
    assert outcome.notes == (
        "1 of 2 models reached their horizon before the chosen epoch, so their last epoch is used",
        "curves of different length: from epoch 2 on, the mean is over the runs that still train",
    )
    assert select(group, StoppingMethod(Kind.NEVER)).epoch.mean == 2.0  # epochs 1 and 3
    assert select(group, by(NthRise(1))).notes == ("t1(1) did not fire in 1 of 2 cases, so the last epoch is used",)


def test_losses_that_are_not_finite():
    group = group_of(disparity([1.0, 2.0, 3.0], [1.0, nan, inf]))
    assert select(group, StoppingMethod(Kind.ORACLE_LOSS)).epoch.mean == 0.0
    assert select(group, StoppingMethod(Kind.NEVER)).regret["test_loss"].mean == inf
    assert math.isnan(select(group, by(NthRise(1))).regret["test_loss"].mean)
    lost = group_of(*[disparity([1.0, 2.0], [nan, nan])])
    oracle = select(lost, StoppingMethod(Kind.ORACLE_LOSS))
    assert (oracle.epoch.mean, oracle.num_fired) == (1.0, 0)
    assert math.isnan(oracle.regret["test_loss"].mean)


def test_top5_and_auc_are_evaluated_if_recorded():
    expected = {"test_loss": 1.0, "test_error": 0.5, "test_top5": 0.25, "test_auc": 0.75}
    record = record_of(SPEC.with_(signals=()), **{name: [value] for name, value in expected.items()})
    metrics = select(group_of(record), StoppingMethod(Kind.NEVER)).metrics
    assert {name: value.mean for name, value in metrics.items()} == expected


def test_both_protocols_are_reported(two_folds):
    outcomes = outcomes_of(two_folds)
    assert len(outcomes) == 2 * len({outcome.method for outcome in outcomes})
    assert [outcome.protocol for outcome in outcomes[:2]] == [Protocol.PER_RUN, Protocol.MEAN_CURVE]


numbers = st.floats(0.0, 1e6)
lengths = st.integers(1, 12)


@st.composite
def some_groups(draw):
    """Full runs and two folds of a few seeds, of any length."""
    records = []
    for seed in range(draw(st.integers(1, 3))):
        for fold in (None, 0, 1):
            length = draw(lengths)
            curves = [draw(st.lists(numbers, min_size=length, max_size=length)) for _ in range(4)]
            folds = {} if fold is None else {"fold": fold, "folds": 2}
            val = None if fold is None else curves[3]
            signals = {"gradient_disparity": curves[2], "gwa": curves[3]}
            records.append(record(curves[0], error=curves[1], signals=signals, val=val, seed=seed, **folds))
    return group_of(*records)


@settings(max_examples=15)
@given(some_groups())
def test_regret_is_never_negative_and_the_oracle_never_worse(group):
    for outcome in outcomes_of(group):
        for name, kind in (("test_loss", Kind.ORACLE_LOSS), ("test_error", Kind.ORACLE_ERROR)):
            assert all(choice.regret[name] >= 0.0 for choice in outcome.choices)
            if outcome.method.kind in (Kind.SIGNAL, Kind.NEVER, Kind.KPLUS):
                oracle = select(group, StoppingMethod(kind), outcome.protocol).metrics[name].mean
                assert outcome.metrics[name].mean >= oracle * (1 - 1e-12)


@settings(max_examples=15)
@given(some_groups())
def test_with_one_seed_the_two_protocols_agree(group):
    alone = group_of(*[r for r in (*group.full, *group.folded) if r.spec.seed == 0])
    outcomes = outcomes_of(alone)
    for each, together in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert each.method == together.method
        assert each.choices == together.choices
        assert {n: v.mean for n, v in each.metrics.items()} == {n: v.mean for n, v in together.metrics.items()}


@settings(max_examples=15)
@given(some_groups(), st.integers(1, 4))
def test_consecutive_rises_never_stop_before_the_nth_rise(group, patience):
    for protocol in Protocol:
        first = select(group, by(NthRise(patience)), protocol)
        second = select(group, by(ConsecutiveRises(patience)), protocol)
        for one, other in zip(first.choices, second.choices, strict=True):
            assert other.stopped is None or (one.stopped is not None and one.stopped <= other.stopped)


def test_without_roll_back_the_stop_is_evaluated():
    group = group_of(disparity([3.0, 1.0, 2.0, 2.0]))
    assert select(group, by(Patience(2))).choices[0].epoch == 3
    rolled_back = StoppingMethod(Kind.SIGNAL, "gradient_disparity", Patience(2), roll_back=True)
    assert select(group, rolled_back).choices[0].epoch == 1


def plain(*, done=True, **changes):
    """A run of two epochs with constant curves."""
    spec = SPEC.with_(**{"epochs": 2, "signals": ("cosine",), **changes})
    return record_of(
        spec, done=done, test_loss=[1.0] * 2, test_error=[0.5] * 2, **dict.fromkeys(spec.signals, [0.5] * 2)
    )


FULL = [plain(seed=seed) for seed in (0, 1)]
FOLDS = {(seed, fold): plain(seed=seed, fold=fold, folds=2, signals=()) for seed in (0, 1) for fold in (0, 1)}
ALONE = plain(seed=2, fold=0, folds=2, signals=())  # its other fold was never run


@pytest.fixture
def group():
    return group_of(*FULL, *FOLDS.values(), ALONE)


@pytest.mark.parametrize(
    "method",
    [StoppingMethod(Kind.SIGNAL, "cosine", NthRise(1)), StoppingMethod(Kind.NEVER), StoppingMethod(Kind.ORACLE_LOSS)],
    ids=str,
)
def test_a_run_on_all_the_data_is_its_own_decision_group(group, method):
    assert decision_groups(group, method) == [DecisionGroup((run,), (run,)) for run in FULL]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.HOLDOUT, [DecisionGroup((run,), (run,)) for run in (FOLDS[0, 0], FOLDS[1, 0], ALONE)]),
        (Kind.KFOLD, [DecisionGroup(runs, runs) for runs in ((FOLDS[s, 0], FOLDS[s, 1]) for s in (0, 1))]),
        (Kind.KFOLD_EACH, [DecisionGroup((FOLDS[s, i],), (FOLDS[s, i],), i) for s in (0, 1) for i in (0, 1)]),
        (Kind.KPLUS, [DecisionGroup((FOLDS[s, 0], FOLDS[s, 1]), (FULL[s],)) for s in (0, 1)]),
    ],
)
def test_decision_groups_of_folds(group, kind, expected):
    assert decision_groups(group, StoppingMethod(kind, rule=NthRise(1), folds=2)) == expected


def test_k_plus_fold_leaves_out_seeds_without_a_run_on_all_the_data():
    group = group_of(FULL[1], *FOLDS.values())
    assert [
        each.evaluated for each in decision_groups(group, StoppingMethod(Kind.KPLUS, rule=NthRise(1), folds=2))
    ] == [(FULL[1],)]


def test_seeds_without_the_signal_are_left_out():
    group = group_of(FULL[0], plain(seed=1, signals=()))
    assert decision_groups(group, StoppingMethod(Kind.SIGNAL, "cosine", NthRise(1))) == [
        DecisionGroup((FULL[0],), (FULL[0],))
    ]
    assert len(decision_groups(group, StoppingMethod(Kind.NEVER))) == 2


def test_merging_seeds_keeps_folds_that_stop_by_themselves_separate(group):
    one, other = FOLDS[0, 0], FOLDS[0, 1]
    whole = tuple(FOLDS.values())
    assert merge_seeds(decision_groups(group, StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=2))) == [
        DecisionGroup(whole, whole)
    ]
    assert merge_seeds(decision_groups(group, StoppingMethod(Kind.KPLUS, rule=NthRise(1), folds=2))) == [
        DecisionGroup(whole, tuple(FULL))
    ]
    each = merge_seeds(decision_groups(group, StoppingMethod(Kind.KFOLD_EACH, rule=NthRise(1), folds=2)))
    assert each == [DecisionGroup((run, FOLDS[1, i]), (run, FOLDS[1, i]), i) for i, run in enumerate((one, other))]


def test_missing_runs_raise_with_the_runs_that_exist(group):
    with pytest.raises(ArgumentError, match="None of these 2 runs recorded 'sign'. Recorded: cosine"):
        decision_groups(group, StoppingMethod(Kind.SIGNAL, "sign", NthRise(1)))
    with pytest.raises(ArgumentError, match="'5-fold, t1.1.' should have finished runs of 'digits fully") as raised:
        decision_groups(group, StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=5))
    assert "Found 2 runs on all the data and 2 seeds with all 2 folds; 0 runs are not" in str(raised.value)
    begun = group_of(*[plain(seed=seed, done=False) for seed in (0, 1)])
    with pytest.raises(ArgumentError, match="and no folds; 2 runs are not finished. Run the missing ones first."):
        decision_groups(begun, StoppingMethod(Kind.NEVER))
