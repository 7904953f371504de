"""Comparisons of stopping methods on small tasks that are really trained."""

import pytest
from tests import tasks

import heldin.lab
from heldin.errors import HeldinError
from heldin.lab.comparing import compare, plan
from heldin.lab.engine import Progress
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from heldin.rules import NthRise


def compared(task, store, **options):
    return compare(task, **{"store": store, "seeds": 2, "folds": 2, "jobs": 1, "device": "cpu", **options})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    return store, compared(tasks.task, store)


def lines_of(store):
    return {path.parent.name: path.read_bytes() for path in (store.root / "runs").glob("*/epochs.jsonl")}


def test_each_seed_is_trained_on_all_the_data_and_on_the_folds(recorded):
    store, found = recorded
    assert len(found.group.full) == 2
    assert len(found.group.folded) == 4
    assert len(lines_of(store)) == 6
    assert len(found.answer.lines) == 5
    assert str(found).startswith("1. Best here: ")
    assert found.report.read_text().startswith("<!DOCTYPE html>")
    kinds = {outcome.method.kind for outcome in found.outcomes}
    assert {*Kind} - {Kind.KFOLD_EACH} == kinds
    assert set(found.frame()["method"]) >= {"no early stopping", "2+-fold, Patience(5), rolled back"}


def test_what_is_recorded_is_not_trained_again(recorded):
    store, found = recorded
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("timings.jsonl")}
    again = compared(tasks.task, store)
    assert again.answer == found.answer
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("timings.jsonl")} == before


def test_two_jobs_write_what_one_writes(recorded, tmp_path):
    store, _ = recorded
    compared(tasks.task, Store(tmp_path), jobs=2)
    assert lines_of(Store(tmp_path)) == lines_of(store)


@pytest.mark.parametrize("function", [tasks.with_scheduler, tasks.augmented], ids=["scheduler", "augmentation"])
def test_an_interrupted_comparison_continues_with_the_same_numbers(function, tmp_path, monkeypatch):
    whole, parts = Store(tmp_path / "whole"), Store(tmp_path / "parts")
    compared(function, whole, seeds=1)
    from heldin.lab import run

    epoch, calls = run._Training.epoch, []

    def interrupted(self, number):
        calls.append(number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return epoch(self, number)

    with monkeypatch.context() as patched:
        patched.setattr(run._Training, "epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compared(function, parts, seeds=1)
    assert sorted(map(len, lines_of(parts).values())) != sorted(map(len, lines_of(whole).values()))
    compared(function, parts, seeds=1)
    assert lines_of(parts) == lines_of(whole)


def test_without_folds_no_validation_is_compared(tmp_path):
    found = compared(tasks.task, tmp_path, folds=0)
    assert found.group.folded == ()
    assert "cross-validation was not run" in found.answer.lines[2]
    assert found.report.exists()


def test_without_a_test_set_nothing_is_said_about_the_test_error(tmp_path):
    found = compared(tasks.without_test, tmp_path)
    assert len(found.answer.lines) == 5
    assert found.answer.lines[0].startswith("There is no test set, so nothing is said about the test error.")
    assert "On the 4 folds left out" in found.answer.lines[0]
    assert not any("test_error" in epoch for record in found.group.full for epoch in record.epochs)
    page = found.report.read_text()
    assert "What the folds say about each epoch" in page
    assert "How noisy each signal is" in page


def test_without_folds_and_test_set_no_epoch_is_called_better(tmp_path):
    found = compared(tasks.without_test, tmp_path, folds=0, seeds=1)
    assert "no epoch can be called better than another" in found.answer.lines[0]
    assert "Add --folds 5, or a test set." in found.answer.lines[4]
    assert found.report.exists()


def test_a_changed_task_is_another_one(tmp_path, capsys):
    file = tmp_path / "small.py"
    text = "from tests import tasks\n\ndef task():\n    return tasks.task()\n"
    file.write_text(text)
    options = {"seeds": 1, "folds": 0, "progress": Progress(quiet=True)}
    first = compared(file, tmp_path / "store", **options)
    assert first.notes == ()
    file.write_text(text.replace("tasks.task()", "tasks.task(epochs=3)"))
    second = compared(file, tmp_path / "store", **options)
    (note,) = second.notes
    assert "is another one than before: its source changed. The 1 run of the earlier one stay" in note
    assert note in capsys.readouterr().err
    assert first.group.setting != second.group.setting
    assert len(lines_of(Store(tmp_path / "store"))) == 2
    file.write_text(text)
    assert compared(file, tmp_path / "store", **options).notes == ()


def test_methods_are_chosen_by_name(recorded):
    store, _ = recorded
    found = compared(tasks.task, store, methods=["cosine", "kplus", StoppingMethod(Kind.NEVER)])
    names = {outcome.method.name for outcome in found.outcomes if outcome.method.realizable}
    default = "gradient_disparity, t1(5)"
    assert names == {"no early stopping", default, "cosine, t1(5)", "2+-fold, Patience(5), rolled back"}
    assert {each.method.name for each in compared(tasks.task, store, methods="cosine").outcomes} < names | {
        "best epoch by test accuracy",
        "best epoch by test loss",
    }


def test_arrays_of_the_lab_are_compared_too(tmp_path):
    spec = RunSpec(
        dataset="digits",
        num_samples=40,
        model="resnet8",
        scale=0.1,
        optimizer="NAdam",
        optimizer_options=("betas=(0.8, 0.9)",),
        scheduler="CosineAnnealingLR",
        scheduler_options=("T_max=2",),
        batch_size=10,
        epochs=2,
        num_test=20,
    )
    found = compared(spec, tmp_path, seeds=1, folds=0)
    assert found.group.setting.model == "resnet8"
    assert "NAdam" in found.report.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "`folds` should be an integer of at least 2"),
        ({"folds": 49}, "`folds` should be at most 48"),
        ({"seeds": 0}, "`seeds` should be an integer of at least 1"),
        ({"seeds": []}, "At least one seed"),
        ({"device": "tpu"}, "`device` should be one of 'auto', 'cpu', 'cuda', 'mps'"),
        ({"jobs": 0}, "`jobs`"),
        ({"methods": ["kfolds"]}, "Did you mean 'kfold'"),
        ({"methods": ["foo"]}, r"Found 'foo'\.$"),
        ({"methods": ["cosine,kfold"]}, "Repeat the option, such as --method cosine --method kfold"),
        ({"methods": ["kfold"], "folds": 0}, "needs folds"),
        ({"methods": ["gsnr"]}, "one of those that are recorded: gradient_disparity.*Found 'gsnr'"),
        ({"methods": StoppingMethod(Kind.KFOLD, rule=NthRise(), folds=3)}, "as many folds as are trained, 2. Found 3"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(options, message, tmp_path):
    with pytest.raises(HeldinError, match=message):
        compared(tasks.task, tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


def test_the_device_is_recorded_with_the_timings_and_not_in_the_spec(recorded):
    store, found = recorded
    spec = found.group.full[0].spec
    assert "device" not in spec.as_dict()
    assert store.folder(spec).timings()[0]["begun"]["device"] == "cpu"


def test_the_plan_names_the_runs_on_all_the_data_first(tmp_path):
    planned = plan(tasks.task, Store(tmp_path), seeds=[3, 1], folds=2)
    assert [(spec.seed, spec.fold) for spec in planned.specs] == [(3, None), (1, None), (3, 0), (3, 1), (1, 0), (1, 1)]
    assert not any(spec.signals for spec in planned.specs[2:])


def test_the_names_of_the_lab_are_found_by_attribute():
    assert heldin.lab.compare is compare
    with pytest.raises(AttributeError, match="no attribute 'comparison'"):
        _ = heldin.lab.comparison
