"""Which runs belong together."""

from __future__ import annotations

from heldin.lab.grouping import by_setting, groups
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=1, signals=("cosine",))


def record(*, done=True, values=(0.5,), **changes):
    spec = SPEC.with_(**changes)
    signals = dict.fromkeys(spec.signals, 0.25)
    return RunRecord(spec, tuple({"epoch": e, "test_loss": v, "signals": signals} for e, v in enumerate(values)), done)


def test_runs_that_differ_in_seed_and_fold_alone_belong_together():
    records = [
        record(seed=2),
        record(seed=1),
        *(record(seed=1, fold=i, folds=2) for i in (1, 0)),
        record(model="vgg11"),
    ]
    first, second = groups(records)
    assert [r.spec.seed for r in first.full] == [1, 2]
    assert [r.spec.fold for r in first.folded] == [0, 1]
    assert first.folds == (2,)
    assert first.setting == SPEC.with_(signals=())
    assert second.title.startswith("digits vgg11")
    assert (second.full[0].spec.model, second.folded) == ("vgg11", ())


def test_only_seeds_with_all_folds_make_a_set():
    whole = [record(seed=3, fold=i, folds=3) for i in range(3)]
    (group,) = groups([*whole, record(seed=4, fold=0, folds=3), record(seed=4, fold=2, folds=3)])
    assert group.fold_sets(3) == {3: tuple(whole)}
    assert [r.spec.seed for r in group.first_folds(3).values()] == [3, 4]
    assert group.fold_sets(5) == {}


def test_several_numbers_of_folds_stand_side_by_side():
    (group,) = groups([record(fold=i, folds=k) for k in (3, 2) for i in range(k)])
    assert group.folds == (2, 3)
    assert [len(group.fold_sets(k)[0]) for k in (2, 3)] == [2, 3]


def test_unfinished_runs_take_no_part_and_are_named():
    begun, empty = record(seed=1, done=False), record(seed=2, values=())
    (group,) = groups([record(), begun, empty])
    assert len(group.full) == 1
    assert group.unfinished == (begun.id, empty.id)


def test_signals_measured_apart_are_put_together():
    (group,) = groups([record(), record(signals=("sign",)), record(signals=(), fold=0, folds=2)])
    assert group.signals == ("cosine", "sign")
    (run,) = group.full
    assert run.epochs[0]["signals"] == {"cosine": 0.25, "sign": 0.25}
    assert group.first_folds(2)[0].names == []


def test_no_records_no_groups():
    assert groups([]) == []


def test_runs_are_listed_by_setting_seed_and_fold():
    listed = [
        record(num_samples=None),
        record(num_samples=50, batch_size=50),
        record(),
        *(record(fold=i, folds=2) for i in (0, 1)),
        *(record(fold=i, folds=10) for i in (0, 9)),
        record(seed=1),
        record(seed=10),
        record(num_samples=1000),
    ]
    assert by_setting(reversed(listed)) == listed
