"""table: all kinds of tables in every format."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from heldin.cli.table import KINDS, LEGENDS, SHORT_LEGENDS
from heldin.lab.curves import groups
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.select import Protocol, select
from heldin.lab.store import Store
from heldin.rules import NthRise


def test_the_comparison_equals_select(heldin, store):
    tables = json.loads(heldin("table", "--label-noise", 0.5, "--patience", 2, "--json").out)
    [group] = groups(Store(store).records(lambda spec: spec.label_noise == 0.5))
    assert [table["title"] for table in tables] == [group.title]
    outcome = select(group, StoppingMethod(Kind.SIGNAL, "cosine", NthRise(2)), Protocol.MEAN_CURVE)
    [row] = [r for r in tables[0]["rows"] if r["method"] == "cosine, t1(2)" and r["protocol"] == "mean_curve"]
    assert row["test error"] == outcome.metrics["test_error"].mean
    assert row["epoch"] == outcome.epoch.mean
    assert row["seconds"] > 0.0
    methods = {row["method"] for row in tables[0]["rows"]}
    assert {"no early stopping", "2-fold, t1(2)", "2+-fold, t1(2)", "1/2 held out, t1(2)"} <= methods


def test_csv_is_one_table_with_the_setting_in_the_first_column(heldin, store):
    rows = list(csv.DictReader(io.StringIO(heldin("table", "--format", "csv").out)))
    assert len({row["table"] for row in rows}) == 2
    assert all(float(row["test error"]) <= 1.0 for row in rows)


@pytest.mark.parametrize(
    ("format_", "beginning"), [("markdown", "**digits"), ("latex", "% digits"), ("json", "["), ("csv", "table,")]
)
def test_every_format_can_be_written_to_a_file(heldin, store, tmp_path, format_, beginning):
    printed = heldin("table", "--format", format_)
    assert printed.out.startswith(beginning)
    answer = heldin("table", "--format", format_, "--out", "table.txt")
    assert answer.out == "The table is in table.txt.\n"
    assert (tmp_path / "table.txt").read_text() == printed.out


def test_thresholds_sensitivity_and_correlation(heldin, store):
    noisy = ("--label-noise", 0.5, "--signal", "cosine", "--json")
    thresholds = json.loads(heldin("table", "thresholds", *noisy).out)
    assert [table["title"].rpartition(": ")[2] for table in thresholds] == ["cosine", "2-fold"]
    assert [row["threshold"] for row in thresholds[0]["rows"]][:2] == ["t1(1)", "t1(2)"]
    [sensitivity] = json.loads(heldin("table", "sensitivity", *noisy).out)
    assert {row["method"] for row in sensitivity["rows"]} == {"cosine", "2-fold"}
    [correlation] = json.loads(heldin("table", "correlation", "--metric", "test_error", "--json").out)
    assert {row["signal"] for row in correlation["rows"]} == {"gradient_disparity", "cosine", "label_wave"}
    assert all(-1.0 <= row["mean curve"] <= 1.0 for row in correlation["rows"])


def test_unfinished_runs_are_left_out_and_named(heldin, store):
    [clean] = Store(store).records(lambda spec: spec.label_noise == 0.0)
    [other] = Store(store).records(lambda spec: spec.seed == 1)
    (store / "runs" / other.id / "done.json").unlink()
    answer = heldin("table", "--json")
    assert answer.code == 0
    assert f"Left out because they are not done: {other.id} of " in answer.err
    assert clean.id not in answer.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("corelation",), "Did you mean 'correlation'?"),
        (("--format", "latx"), "Did you mean 'latex'?"),
        (("--rule", "nth"), "Did you mean 'nth_rise'?"),
        (("--patience", 0), "`--patience` should be an integer of at least 1"),
        (("--signal", "cosin"), "Did you mean 'cosine'?"),
        (("correlation", "--metric", "test_los"), "Did you mean 'test_loss'?"),
        (("--metric", "foo"), "Found --metric foo for the table comparison. Remove it"),
        (("thresholds", "--metric", "test_loss"), "--metric belongs to `heldin table correlation`."),
        (("--signal", "cosine,sign"), "Repeat the option, such as --signal cosine --signal sign."),
        (("--out", "no/such/folder.md"), "no/such/folder.md cannot be written: No such file or directory."),
    ],
)
def test_wrong_options_raise(refused, store, flags, words):
    assert words in refused("table", *flags)


@pytest.mark.parametrize(
    ("kind", "flags", "legend"),
    [
        *((kind, ("--all",), LEGENDS[kind]) for kind in KINDS),
        *((kind, (), SHORT_LEGENDS[kind]) for kind in SHORT_LEGENDS),
    ],
)
def test_columns_are_explained_below_the_table(heldin, store, kind, flags, legend):
    answer = heldin("table", kind, "--signal", "cosine", *flags)
    columns = [name for part in legend for name in part.split(", ") if name != "bold"]
    assert columns
    for column in columns:
        assert re.search(rf"\| {column}[^|]* \|", answer.out)
    assert all(f"{part}: " in answer.err for part in legend)
    for_programs = heldin("table", kind, "--signal", "cosine", "--json").err
    assert not any(f"{part}: " in for_programs for part in legend)


def rows_of(markdown):
    """The first cells of the rows of a markdown table, and those of the rows in bold."""
    cells = [line.split(" | ")[0].removeprefix("| ") for line in markdown.splitlines() if line.startswith("| ")][2:]
    return [cell.strip("*") for cell in cells], [cell.strip("*") for cell in cells if cell.startswith("**")]


def test_the_table_opens_with_the_conclusion_and_the_rows_that_it_names(heldin, store):
    answer = heldin("table", "--label-noise", 0.5)
    [complete] = json.loads(heldin("table", "--label-noise", 0.5, "--json").out)
    conclusion, title, *_ = [line for line in answer.out.splitlines() if line]
    assert conclusion == complete["conclusion"]
    assert conclusion.startswith("Against the best epoch")
    assert title.startswith("**digits")
    methods, bold = rows_of(answer.out)
    assert "folds stop at the 5th rise of their validation loss" in conclusion
    named = {"gradient_disparity, t1(5)", "2-fold, t1(5)", "2+-fold, t1(5)", "no early stopping"}
    assert {"best epoch by test accuracy", *named} <= {*methods}
    assert len(methods) <= 6
    assert bold == [complete["best"]]
    assert len(complete["rows"]) > 10
    assert "All methods stop by t1(5), the 5th rise; --rule own" in answer.out
    assert "its default rule, validation losses by t1(5)" in heldin("table", "--rule", "own").out


def test_lost_is_the_same_in_both_tables_and_differs_from_regret_for_folds(heldin, store):
    noisy = ("--label-noise", 0.5)
    lines = [line for line in heldin("table", *noisy).out.splitlines() if line.startswith("| ")]
    short = {cells[0].strip("*| "): float(cells[4].strip("*| ")) for line in lines[2:] if (cells := line.split(" | "))}
    [table] = json.loads(heldin("table", *noisy, "--json").out)
    complete = {row["method"]: row for row in table["rows"] if row["protocol"] == "per_run"}
    assert short == {name: pytest.approx(100.0 * complete[name]["lost error"], abs=0.05) for name in short}
    assert complete["2-fold, t1(5)"]["lost error"] != pytest.approx(complete["2-fold, t1(5)"]["regret error"])


def test_tasks_are_named_and_earlier_versions_are_marked(heldin, tmp_path):
    options = ("--seeds", 1, "--folds", 0, "--jobs", 1, "--quiet")
    for epochs in (2, 3):
        source = f"from tests import tasks\n\ndef task():\n    return tasks.task(epochs={epochs})\n"
        (tmp_path / "mine.py").write_text(source)
        assert heldin("compare", "mine.py", *options).code == 0
    answer = heldin("table")
    [new, old] = sorted(re.findall(r"^\*\*(task:.*)\*\*$", answer.out, re.MULTILINE), key=len)
    assert re.fullmatch(r"task:mine batch_size=\d+ epochs=3", new)
    assert re.fullmatch(r"task:mine batch_size=\d+ epochs=2 \(an earlier version of the task, [0-9a-f]{16}\)", old)
    assert "seconds: " not in answer.err  # the table has no such column
    assert "`heldin compare` answers in five lines for a task" in answer.err


def test_all_shows_what_the_json_has(heldin, store):
    noisy = ("--label-noise", 0.5)
    complete, [table] = heldin("table", *noisy, "--all").out, json.loads(heldin("table", *noisy, "--json").out)
    assert rows_of(complete)[0] == [row["method"] for row in table["rows"]]
    thresholds = ("thresholds", *noisy)
    short, every = heldin("table", *thresholds), heldin("table", *thresholds, "--all")
    assert len(short.out.splitlines()) < 12
    assert every.out.count("| t2(10) |") == 4
    for answer in (short, every):
        assert "the mean curve over the seeds, not the curve of one run." in answer.err


def test_csv_is_an_option_and_two_formats_are_refused(heldin, refused, store):
    assert heldin("table", "--csv").out == heldin("table", "--format", "csv").out
    assert "One format should be given. Found csv, json." in refused("table", "--csv", "--json")


def test_without_a_terminal_there_are_no_colours(heldin, store, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in heldin("table").out


def test_what_was_not_learnt_and_rules_that_never_fired_are_flagged(heldin, store):
    [row, *_] = [
        line for line in heldin("table", "--patience", 50).out.splitlines() if "gradient_disparity, t1" in line
    ]
    assert "| never |" in row
    for path in store.rglob("epochs.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        flat = [json.dumps({**line, "train_error": 0.9, "test_error": 0.9}) for line in lines]
        path.write_text("\n".join(flat) + "\n")
    answer = heldin("table", "--json")
    assert all(table["nothing_learnt"] for table in json.loads(answer.out))
    assert "Nothing learnt here: " in answer.err
    assert "Nothing learnt here: " in heldin("table").out


@pytest.mark.parametrize("kind", SHORT_LEGENDS)
def test_a_short_table_fits_80_columns(heldin, store, monkeypatch, kind):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", heldin("table", kind, "--label-noise", 0.5).out).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("gradient_disparity" in line for line in lines)


@pytest.mark.parametrize("width", [100, 250])
def test_a_table_is_fitted_to_the_terminal(heldin, store, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    answer = heldin("table", "--label-noise", 0.5, "--signal", "gradient_disparity", "--patience", 50, "--all")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", answer.out).splitlines()
    assert not {"|", "…"} & {*answer.out}
    assert max(map(len, lines)) <= width
    assert "(a) t1(50) never fired, so the last epoch is used" in lines
    names = "".join(line[:40] for line in lines)
    assert "gradi" in names
    assert width == 100 or "gradient_disparity, t1(50) (a)" in names
