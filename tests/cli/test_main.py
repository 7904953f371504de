"""The entrance: exit codes, messages without tracebacks."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_a_wrong_verb_gets_the_near_match(refused):
    assert "No such command 'tabel'. Did you mean 'table'?" in refused("tabel")
    assert "Did you mean 'list'?" in refused("data", "lst")


def test_a_wrong_flag_gets_the_near_match(refused):
    assert "--epochs" in refused("run", "--epoch", "3")


def test_without_the_extra_the_command_says_what_to_install(heldin, monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    answer = heldin("doctor")
    assert answer.code == 2
    assert answer.err == 'heldin: The command line needs typer. Install it: pip install "heldin[lab]".\n'


def test_a_mistake_of_our_own_is_not_hidden(heldin, monkeypatch):
    monkeypatch.setattr("heldin.cli.signals.list_signals", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        heldin("signals")


def test_python_dash_m_is_the_command_and_a_refusal_leaves_code_2():
    command = [sys.executable, "-m", "heldin", "replay", "no-such-file"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("heldin: no-such-file should be a file of numbers.")
    assert "Traceback" not in ran.stderr
