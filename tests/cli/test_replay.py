"""replay: a rule applied to recorded curves or to numbers."""

from __future__ import annotations

import io
import json

import pytest

from heldin.lab.store import Store
from heldin.rules import NthRise, replay


@pytest.mark.parametrize(
    ("text", "flags", "epoch"),
    [
        ("6 5 7 4 8", ("--rule", "nth_rise", "--patience", 2), 4),
        ("6,5,7,4,8", ("--patience", 2), 4),
        ("1\n2\n3\n", ("--rule", "consecutive_rises", "--patience", 2), 2),
        ("6 5 5 5 5 5", ("--rule", "patience", "--patience", 3), 4),
        ("-3 -0.2 0 0.1", ("--rule", "level", "--threshold", 0), 3),
        ("3 2 1", ("--patience", 1, "--direction", "falls"), 1),
        ("4 2 3 2 4", ("--patience", 1, "--smooth", 2), 4),
        ("1 nan nan", ("--patience", 2), 2),
        ("3 2 1", ("--patience", 1), None),
    ],
)
def test_numbers_of_a_file(heldin, tmp_path, text, flags, epoch):
    (tmp_path / "numbers.txt").write_text(text)
    answer = heldin("replay", "numbers.txt", "--json", *flags)
    assert answer.code == 0
    assert json.loads(answer.out)["epoch"] == epoch


def test_numbers_of_standard_input(heldin, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("6 5 7 4 8"))
    answer = heldin("replay", "-", "--patience", "2")
    assert answer.out == "stopped at epoch 4: the value rose for the 2nd time (4 -> 8).\n"


def test_a_value_that_is_not_finite_is_null_in_json(heldin, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1 nan"))
    assert json.loads(heldin("replay", "-", "--json").out)["value"] is None


def test_recorded_curves_are_replayed_with_the_direction_of_the_signal(heldin, store):
    found = json.loads(heldin("replay", "--signal", "cosine", "--patience", 2, "--json").out)
    assert found["direction"] == "falls"
    records = {record.id: record for record in Store(store).records() if "cosine" in record.names}
    assert {run["run"] for run in found["runs"]} == set(records)
    for run in found["runs"]:
        record = records[run["run"]]
        expected = replay(NthRise(2), record.curve("cosine"), direction="falls").epoch
        assert run["stop"] == expected
        assert expected is not None
        assert run["test_error"] == record.epochs[expected]["test_error"]


def test_epochs_without_a_value_are_skipped_but_counted(heldin, store):
    found = json.loads(heldin("replay", "--signal", "label_wave", "--rule", "nth_rise", "--patience", 1, "--json").out)
    for run in found["runs"]:
        curve = Store(store).records(lambda spec, wanted=run["run"]: spec.id == wanted)[0].curve("label_wave")
        assert curve[0] is None
        first = next((e for e in range(2, len(curve)) if curve[e] > curve[e - 1]), None)
        assert run["stop"] == first


def test_the_default_rule_is_that_of_the_signals_authors(heldin, store):
    found = json.loads(heldin("replay", "--signal", "label_wave", "--json").out)
    assert found["rule"].startswith("FirstMinimum(")


def test_rises_of_an_accuracy_do_not_stop(heldin, store):
    found = json.loads(heldin("replay", "--signal", "test_accuracy", "--json").out)
    assert found["direction"] == "falls"


def test_a_metric_can_be_replayed(heldin, store):
    answer = heldin("replay", "--signal", "val_loss", "--rule", "patience", "--patience", 1)
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 3  # the two folds alone have one
    assert "3 more runs did not record val_loss." in answer.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--signal", "cosin"), "Did you mean 'cosine'?"),
        (("--signal", "val_los"), "Did you mean 'val_loss'?"),
        (("--signal", "val_loss", "--label-noise", 0), "Validation needs --folds."),
        (("--signal", "accuracy"), "Did you mean 'test_accuracy'?"),
        (("--signal", "error"), "None of these 5 runs recorded 'error'. Recorded: gradient_disparity, cosine"),
        (("--signal", "nope"), "None of these 5 runs recorded 'nope'. Recorded: gradient_disparity, cosine"),
        (("--signal", "gsnr"), "None of these 5 runs recorded 'gsnr'. Recorded: gradient_disparity, cosine"),
        (("--rule", "nth_ris"), "Did you mean 'nth_rise'?"),
        (("--rule", "level"), "Write --rule level --threshold 0."),
        (("--threshold", 1), "--rule level and --threshold should be given together."),
        (("--rule", "level", "--threshold", 1, "--patience", 2), "--rule level has no patience."),
        (("--patience", 0), "`patience` should be an integer of at least 1"),
        (("--direction", "up"), "`direction` should be one of 'rises', 'falls'"),
        (("--smooth", 0), "`--smooth` should be an integer of at least 1"),
    ],
)
def test_wrong_options_raise(refused, store, flags, words):
    assert words in refused("replay", *flags)


@pytest.mark.parametrize(
    ("text", "words"), [("1 2\n3 x", "Found 'x' in line 2."), ("", "numbers.txt should contain numbers.")]
)
def test_a_file_without_numbers_raises(refused, tmp_path, text, words):
    (tmp_path / "numbers.txt").write_text(text)
    assert words in refused("replay", "numbers.txt")


def test_titles_show_only_what_differs_between_the_runs(heldin, store):
    noisy = heldin("replay", "--label-noise", 0.5)
    rows = [line.split("  ")[-1].strip() for line in noisy.out.splitlines()]
    assert rows == ["title", "seed=0", "seed=1"]
    assert "All runs: digits fully_connected" in noisy.err
    assert "title" not in heldin("replay", "--label-noise", 0.0).out


def test_ids_are_not_broken_in_a_narrow_terminal(heldin, store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = heldin("replay").out
    assert all(record.id in shown for record in Store(store).records() if "cosine" in record.names)
