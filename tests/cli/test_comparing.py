"""What the verbs that compare share: which settings, ways and signals."""

from __future__ import annotations

import pytest

from heldin.cli.comparing import compared, correlated_signals, timings_of, ways_of
from heldin.errors import ArgumentError
from heldin.lab.grouping import groups
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=2, signals=("cosine", "label_wave"))
BASELINES = ["best epoch by test loss", "best epoch by test accuracy", "no early stopping"]


def record(*, done=True, **changes):
    spec = SPEC.with_(**changes)
    line = {"test_loss": 1.0, "test_error": 0.5, "val_loss": 1.0, "signals": dict.fromkeys(spec.signals, 0.5)}
    return RunRecord(spec, tuple({"epoch": epoch, **line} for epoch in range(2)), done)


FOLDS = [record(fold=fold, folds=2, signals=()) for fold in (0, 1)]


@pytest.fixture
def group():
    (found,) = groups([record(), *FOLDS])
    return found


def test_settings_with_runs_that_are_done_are_compared():
    records = [record(), record(label_noise=0.5, done=False), record(label_noise=0.25)]
    assert [group.setting.label_noise for group in compared(records, ["cosine"])] == [0.0, 0.25]


def test_nothing_done_is_refused_with_how_to_go_on():
    records = [record(seed=seed, done=False) for seed in range(3)]
    with pytest.raises(ArgumentError, match="None of these 3 runs is done, so there is nothing to compare.") as raised:
        compared(records, None)
    assert "Give the command of before once more (`heldin run ...`)" in str(raised.value)


def test_a_signal_that_no_run_recorded_is_refused_with_the_near_match():
    with pytest.raises(ArgumentError, match="None of these 2 runs recorded 'cosin'. .* Did you mean 'cosine'"):
        compared([record(), record(seed=1), *FOLDS], ["label_wave", "cosin"])


@pytest.mark.parametrize(
    ("signals", "options", "expected"),
    [
        (["cosine"], {}, ["cosine, t1(5)"]),
        (["cosine"], {"patience": 2}, ["cosine, t1(2)"]),
        (["cosine"], {"rule": "consecutive_rises", "patience": 3}, ["cosine, t2(3)"]),
        (["cosine"], {"rule": "own", "patience": 5}, ["cosine, t1(5)"]),
        (["label_wave"], {"rule": "own"}, ["label_wave, FirstMinimum(window=3, patience=5), rolled back"]),
        (["cosine"], {"rule": "all"}, ["cosine, t1(5)", "cosine, t2(5)"]),
        (None, {}, ["cosine, t1(5)", "label_wave, t1(5)"]),
        ([], {}, []),
    ],
    ids=str,
)
def test_ways_are_those_of_the_signals_and_rules_asked_for(group, signals, options, expected):
    names = [way.name for way in ways_of(group, signals, **options)]
    assert names[:3] == BASELINES
    rules = [name.split(", ")[1] for name in names if name.startswith("2-fold, t")]
    assert [name for name in names[3:] if not name.startswith(("2", "1/2"))] == expected
    assert rules == {"all": ["t1(5)", "t2(5)"], "consecutive_rises": ["t2(3)"]}.get(
        options.get("rule"), [f"t1({options.get('patience', 5)})"]
    )


def test_the_signals_that_all_settings_recorded_are_correlated():
    both = groups([record(signals=("sign", "label_wave", "cosine")), record(label_noise=0.5)])
    assert correlated_signals(both, None) == ["label_wave", "cosine"]
    assert correlated_signals(both, ["sign"]) == ["sign"]


def test_settings_that_share_no_signal_are_refused_unless_one_is_named():
    apart = groups([record(signals=("sign",)), record(label_noise=0.5)])
    with pytest.raises(ArgumentError, match="These 2 settings share no signal. Choose some of them, with --dataset"):
        correlated_signals(apart, None)
    assert correlated_signals(apart, ["sign"]) == ["sign"]


def test_timings_are_those_of_the_settings_own_runs(group, tmp_path):
    store, records = Store(tmp_path), [record(), record(label_noise=0.5), *FOLDS]
    for number, each in enumerate(records):
        folder = store.folder(each.spec)
        with folder.locked():
            folder.append("timings.jsonl", {"number": number})
    assert [line["number"] for line in timings_of(group, records, store)] == [0, 2, 3]
