"""Printing for people and for programs, on a terminal and without one."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import typer

from heldin.cli.output import json_text, note, resumable, show, show_json, show_rows, show_tables
from heldin.lab.tables import Table

ROWS = [{"name": 1, "more": None, "value": 0.123456}, {"name": "a longer one", "more": "[red]"}]
LATE = "it never fired"
TABLE = Table(
    ("method", "error", "nothing", "notes"),
    (
        {"method": "first", "error": 0.25, "notes": LATE},
        {"method": "second", "error": 0.5},
        {"method": "third", "error": 0.75, "notes": LATE},
    ),
    "A title",
    frozenset({(0, "error")}),
)


@pytest.fixture
def terminal(capsys, monkeypatch):
    """Print on a terminal of this width, and return the lines without colours."""
    monkeypatch.setenv("TERM", "xterm")

    def printed(function, *arguments, width):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        function(*arguments)
        return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()]

    return printed


def test_results_go_to_stdout_and_notes_to_stderr(capsys):
    show("a result")
    note("a note")
    assert capsys.readouterr() == ("a result\n", "a note\n")


def test_rows_are_aligned_columns(capsys):
    show_rows(ROWS, ["name", "more", "value"])
    assert capsys.readouterr().out.splitlines() == [
        "name          more   value",
        "1             -      0.1235",
        "a longer one  [red]  -",
    ]


def test_on_a_terminal_rows_are_wrapped_and_markup_is_literal(terminal):
    lines = terminal(show_rows, [*ROWS, {"name": "word " * 20}], ["name", "more", "value"], width=40)
    assert max(map(len, lines)) <= 40
    assert sum(line.count("word") for line in lines) == 20
    assert any("[red]" in line for line in lines)


def test_on_a_terminal_nothing_is_cut_off(terminal):
    rows = [{"run": "0123456789abcdef", "title": "label_noise=0.5"}] * 2
    lines = terminal(show_rows, rows, ["run", "title"], width=20)
    shown = "".join(lines).replace(" ", "").replace("─", "")
    assert sorted(shown) == sorted("runtitle" + "0123456789abcdeflabel_noise=0.5" * 2)


def test_without_rows_only_the_header_is_printed(capsys):
    show_rows([], ["name", "more"])
    assert capsys.readouterr().out == "name  more\n"


def test_tables_are_markdown_without_a_terminal(capsys):
    show_tables([TABLE, TABLE])
    assert capsys.readouterr().out == f"{TABLE.markdown()}\n\n{TABLE.markdown()}\n"


def test_on_a_terminal_notes_are_below_the_table_and_empty_columns_are_left_out(terminal):
    lines = [" ".join(line.split()) for line in terminal(show_tables, [TABLE], width=60)]
    assert [line for line in lines if line and "─" not in line] == [
        "A title",
        "method error",
        "first (a) 0.25",
        "second 0.5",
        "third (a) 0.75",
        f"(a) {LATE}",
    ]


def test_json_has_only_plain_and_finite_values(capsys):
    value = {"path": Path("a/b"), 1: (math.nan, math.inf, -math.inf, 0.1), "deep": [{"x": math.nan, "y": True}, None]}
    plain = {"path": "a/b", "1": [None, None, None, 0.1], "deep": [{"x": None, "y": True}, None]}
    assert json.loads(json_text(value)) == plain
    show_json(value)
    assert json.loads(capsys.readouterr().out) == plain


def test_ctrl_c_exits_with_130_and_prints_how_to_continue(capsys):
    with pytest.raises(typer.Exit) as raised, resumable("heldin run --seeds 0-2"):
        raise KeyboardInterrupt
    assert raised.value.exit_code == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("are recorded. To continue: heldin run --seeds 0-2\n")
