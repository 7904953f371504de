"""Options that verbs share, and one option per field of a spec."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import typer
import typer.main

from heldin.cli.main import build_app
from heldin.cli.options import DEFAULT_STORE, FILTERS, HELP
from heldin.lab.registry import INITS, LOSSES, MODELS, OPTIMIZERS
from heldin.lab.spec import RunSpec

COMMANDS = typer.main.get_command(build_app()).commands
EVERY = [*(command for name, command in COMMANDS.items() if name != "data"), *COMMANDS["data"].commands.values()]


@pytest.mark.parametrize("flag", ["--data", "--jobs", "--quiet", "--json", "--run"])
def test_an_option_is_the_same_in_every_verb(flag):
    listed = [command for command in EVERY if (command.name, flag) != ("compare", "--data")]  # a file, there
    found = [parameter for command in listed for parameter in command.params if flag in parameter.opts]
    assert len(found) > 1
    assert len({(parameter.help, parameter.envvar, parameter.default, parameter.metavar) for parameter in found}) == 1


def test_all_verbs_have_the_same_default_store():
    stores = {
        name: parameter.default
        for name, command in COMMANDS.items()
        for parameter in command.params
        if "--store" in parameter.opts
    }
    assert {"run", "compare", "demo", "status", "replay", "table", "figure", "report", "doctor"} == {*stores}
    assert {Path(str(default)) for default in stores.values()} == {DEFAULT_STORE}


NAMES = [field.name for field in fields(RunSpec)]


def flags_of(verb):
    command = COMMANDS[verb]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", NAMES)
def test_run_has_an_option_for_each_field_of_a_spec(name):
    assert "--" + name.replace("_", "-") in flags_of("run")
    assert name in HELP


@pytest.mark.parametrize(
    ("name", "known"), [("model", MODELS), ("init", INITS), ("optimizer", OPTIMIZERS), ("loss", LOSSES)]
)
def test_the_help_lists_what_the_registry_has(name, known):
    assert f"{', '.join(known)}" in HELP[name]


@pytest.mark.parametrize("verb", ["status", "replay", "table", "figure", "report"])
def test_reading_verbs_select_runs_by_the_same_options(verb):
    assert {"--" + name.replace("_", "-") for name in FILTERS} <= flags_of(verb)


def test_a_boolean_field_has_two_options():
    assert {"--augment", "--no-augment"} <= flags_of("run")
