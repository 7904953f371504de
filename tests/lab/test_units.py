"""Who decides for whom."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.grouping import groups
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.units import Unit, over_seeds, units_of
from heldin.lab.ways import Kind, Way
from heldin.rules import NthRise

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=2, signals=("cosine",))
RULE = NthRise(1)


def record(*, done=True, **changes):
    spec = SPEC.with_(**changes)
    line = {"test_loss": 1.0, "test_error": 0.5, "signals": dict.fromkeys(spec.signals, 0.5)}
    return RunRecord(spec, tuple({"epoch": epoch, **line} for epoch in range(2)), done)


FULL = [record(seed=seed) for seed in (0, 1)]
FOLDS = {(seed, fold): record(seed=seed, fold=fold, folds=2, signals=()) for seed in (0, 1) for fold in (0, 1)}
ALONE = record(seed=2, fold=0, folds=2, signals=())  # its other fold was never run


@pytest.fixture
def group():
    (found,) = groups([*FULL, *FOLDS.values(), ALONE])
    return found


@pytest.mark.parametrize("way", [Way(Kind.SIGNAL, "cosine", RULE), Way(Kind.NEVER), Way(Kind.ORACLE_LOSS)], ids=str)
def test_a_run_on_all_the_data_decides_for_itself(group, way):
    assert units_of(group, way) == [Unit((run,), (run,)) for run in FULL]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.HOLDOUT, [Unit((run,), (run,)) for run in (FOLDS[0, 0], FOLDS[1, 0], ALONE)]),
        (Kind.KFOLD, [Unit(runs, runs) for runs in ((FOLDS[s, 0], FOLDS[s, 1]) for s in (0, 1))]),
        (Kind.KFOLD_EACH, [Unit((FOLDS[s, i],), (FOLDS[s, i],), i) for s in (0, 1) for i in (0, 1)]),
        (Kind.KPLUS, [Unit((FOLDS[s, 0], FOLDS[s, 1]), (FULL[s],)) for s in (0, 1)]),
    ],
)
def test_folds_decide_for_themselves_together_or_for_the_run_on_all_the_data(group, kind, expected):
    assert units_of(group, Way(kind, rule=RULE, folds=2)) == expected


def test_folds_without_a_run_on_all_the_data_of_their_seed_decide_for_none():
    (group,) = groups([FULL[1], *FOLDS.values()])
    assert [unit.read for unit in units_of(group, Way(Kind.KPLUS, rule=RULE, folds=2))] == [(FULL[1],)]


def test_a_seed_without_the_signal_takes_no_part():
    (group,) = groups([FULL[0], record(seed=1, signals=())])
    assert units_of(group, Way(Kind.SIGNAL, "cosine", RULE)) == [Unit((FULL[0],), (FULL[0],))]
    assert len(units_of(group, Way(Kind.NEVER))) == 2


def test_over_seeds_all_share_a_decision_but_folds_that_decide_by_themselves_stay_apart(group):
    one, other = FOLDS[0, 0], FOLDS[0, 1]
    whole = tuple(FOLDS.values())
    assert over_seeds(units_of(group, Way(Kind.KFOLD, rule=RULE, folds=2))) == [Unit(whole, whole)]
    assert over_seeds(units_of(group, Way(Kind.KPLUS, rule=RULE, folds=2))) == [Unit(whole, tuple(FULL))]
    each = over_seeds(units_of(group, Way(Kind.KFOLD_EACH, rule=RULE, folds=2)))
    assert each == [Unit((run, FOLDS[1, i]), (run, FOLDS[1, i]), i) for i, run in enumerate((one, other))]


def test_what_no_record_answers_is_refused_with_what_there_is(group):
    with pytest.raises(ArgumentError, match="None of these 2 runs recorded 'sign'. Recorded: cosine"):
        units_of(group, Way(Kind.SIGNAL, "sign", RULE))
    with pytest.raises(ArgumentError, match="No finished run answers '5-fold, t1.1.' for 'digits fully") as raised:
        units_of(group, Way(Kind.KFOLD, rule=RULE, folds=5))
    assert "Found 2 runs on all the data and 2 seeds with all 2 folds; 0 runs are not" in str(raised.value)
    (begun,) = groups([record(seed=seed, done=False) for seed in (0, 1)])
    with pytest.raises(ArgumentError, match="and no folds; 2 runs are not finished. Run what is missing first."):
        units_of(begun, Way(Kind.NEVER))
