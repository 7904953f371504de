"""The command: its verbs, exit codes, and messages without tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer.main

import heldin as package
from heldin.cli.main import ABOUT, build_app


def test_a_wrong_verb_suggests_the_nearest(refused):
    assert "No such command 'tabel'. Did you mean 'table'?" in refused("tabel")
    assert "Did you mean 'list'?" in refused("data", "lst")


def test_a_wrong_option_suggests_the_nearest(refused):
    assert "--epochs" in refused("run", "--epoch", "3")


BARE = """
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from re import match
names = {match("[a-z-]+", line)[0] for line in requires("heldin") if "extra == 'lab'" in line.replace(chr(34), chr(39))}
for name in [*names, "sklearn", "click"]:
    sys.modules[name] = None
from heldin.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("arguments", [(), ("--help",), ("doctor",)], ids=" ".join)
def test_without_the_lab_the_command_says_in_one_line_what_to_install(arguments):
    ran = subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "heldin: The command line needs typer. Install it with the extra 'lab' of heldin, in a checkout: "
        'pip install ".[lab]".\n'
    )


def test_with_a_part_of_the_lab_the_command_names_the_missing_package(heldin, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    answer = heldin("table", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("heldin: The command line needs pandas. Install it")


HELP = """
import json, sys
from heldin.cli.main import main
verbs = json.loads(sys.argv[1])
codes = [main([*verb, "--help"]) for verb in verbs]
assert codes == [0] * len(verbs), codes
assert not {"torch", "numpy", "pandas", "matplotlib"} & {*sys.modules}
"""


def test_help_is_printed_without_importing_torch():
    verbs = json.dumps([(), *VERBS, ("data",)])
    ran = subprocess.run([sys.executable, "-c", HELP, verbs], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert all(f"heldin {' '.join(verb)}" in ran.stdout for verb in VERBS)


def test_the_shell_completes_verbs_and_options():
    script = "import sys; from heldin.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "_HELDIN_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    for words, completed in (("heldin table --al", "--all"), ("heldin data fe", "fetch")):
        command = [sys.executable, "-c", script]
        environment["COMP_WORDS"] = words
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        assert ran.stdout.split() == [completed], ran.stderr


def test_bugs_are_not_hidden(heldin, monkeypatch):
    monkeypatch.setattr("heldin.signals.list_signals", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        heldin("signals")


def test_python_dash_m_runs_the_command_and_errors_exit_with_2():
    command = [sys.executable, "-m", "heldin", "replay", "no-such-file"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("heldin: no-such-file should be a file of numbers.")
    assert "Traceback" not in ran.stderr


COMMANDS = typer.main.get_command(build_app()).commands
VERBS = [*((verb,) for verb in COMMANDS if verb != "data"), *(("data", verb) for verb in COMMANDS["data"].commands)]


def test_verbs():
    assert {verb[0] for verb in VERBS} == {
        "demo", "compare", "run", "status", "replay", "table", "figure", "report", "signals", "presets", "data",
        "doctor",
    }  # fmt: skip
    assert {verb[1] for verb in VERBS if verb[0] == "data"} == {"list", "fetch", "check"}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_of_a_verb_has_an_example(heldin, verb):
    answer = heldin(*verb, "--help")
    assert answer.code == 0
    _, example, after = answer.out.partition("Example")
    assert example, "no example"
    assert f"heldin {' '.join(verb)}" in after


def test_version_is_printed(heldin):
    answer = heldin("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"heldin {package.__version__}\n", "")


def test_help_lists_every_verb_and_where_to_start(heldin):
    answer = heldin("--help")
    assert answer.code == 0
    words = " ".join(answer.out.replace("│", " ").split())
    assert ABOUT in words
    assert "New here? `heldin demo` takes about two minutes" in words
    assert all(f" {verb} " in words for verb in COMMANDS)
    assert heldin("-h") == answer


@pytest.mark.parametrize("verb", [(), *VERBS, ("data",)], ids=" ".join)
def test_help_looks_the_same_everywhere_and_shows_no_type_of_flags(heldin, verb):
    out = heldin(*verb, "--help").out
    assert "\nOptions:\n" in out
    assert "bool" not in out


def test_paragraphs_of_the_help_break_at_the_width_only():
    for verb in COMMANDS:
        assert "\n" not in COMMANDS[verb].help.replace("\n\n", "")


@pytest.mark.parametrize("before", [(), ("data",)], ids=["heldin", "heldin data"])
def test_without_a_verb_help_is_shown(heldin, before):
    answer, helped = heldin(*before), heldin(*before, "--help")
    assert (answer.out or answer.err).strip() == helped.out.strip()


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_option_has_a_help_text(verb):
    command = COMMANDS[verb[0]]
    command = command.commands[verb[1]] if len(verb) > 1 else command
    assert command.help
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []
