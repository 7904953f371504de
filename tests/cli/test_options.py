"""The flags that verbs share: one name, one meaning."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import typer
import typer.main

from heldin.cli.main import build_app
from heldin.cli.options import (
    DEFAULT_STORE,
    FILTERS,
    HELP,
    NUM_CORES,
    AsJson,
    DataFolder,
    Jobs,
    Quiet,
    RecordedSignals,
    RunIds,
    StoreFolder,
)
from heldin.lab.spec import RunSpec

COMMANDS = typer.main.get_command(build_app()).commands
EVERY = [*(command for name, command in COMMANDS.items() if name != "data"), *COMMANDS["data"].commands.values()]


@pytest.fixture
def given(monkeypatch):
    """What a verb with all of these flags is given."""
    monkeypatch.delenv("HELDIN_DATA", raising=False)

    def call(*arguments):
        verb, found = typer.Typer(), {}

        @verb.command()
        def command(
            store: StoreFolder = DEFAULT_STORE,
            data: DataFolder = None,
            jobs: Jobs = NUM_CORES,
            quiet: Quiet = False,
            as_json: AsJson = False,
            run: RunIds = None,
            signal: RecordedSignals = None,
        ):
            found.update(
                store=store, data=data, jobs=jobs, quiet=quiet, as_json=as_json, run=run or [], signal=signal or []
            )

        verb(list(arguments), standalone_mode=False)
        return found

    return call


def test_without_flags_the_defaults_hold(given):
    assert given() == {
        "store": Path("heldin-runs"), "data": None, "jobs": NUM_CORES, "quiet": False, "as_json": False, "run": [],
        "signal": [],
    }  # fmt: skip
    assert NUM_CORES >= 1


def test_every_flag_is_understood_and_some_may_be_repeated(given):
    flags = "--store s --data d --jobs 3 -q --json --run a --run b --signal x"
    assert given(*flags.split()) == {
        "store": Path("s"), "data": Path("d"), "jobs": 3, "quiet": True, "as_json": True, "run": ["a", "b"],
        "signal": ["x"],
    }  # fmt: skip
    assert given("--quiet")["quiet"]


def test_the_data_folder_is_that_of_the_environment_unless_it_is_named(given, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", "elsewhere")
    assert given()["data"] == Path("elsewhere")
    assert given("--data", "here")["data"] == Path("here")


@pytest.mark.parametrize("flag", ["--data", "--jobs", "--quiet", "--json", "--run"])
def test_a_flag_means_the_same_in_every_verb(flag):
    found = [parameter for command in EVERY for parameter in command.params if flag in parameter.opts]
    assert len(found) > 1
    assert len({(parameter.help, parameter.envvar, parameter.default, parameter.metavar) for parameter in found}) == 1


def test_records_are_looked_for_where_runs_put_them():
    stores = {
        name: parameter.default
        for name, command in COMMANDS.items()
        for parameter in command.params
        if "--store" in parameter.opts
    }
    assert {"run", "demo", "status", "replay", "table", "figure", "report", "doctor"} == {*stores}
    assert {Path(str(default)) for default in stores.values()} == {DEFAULT_STORE}


NAMES = [field.name for field in fields(RunSpec)]


def flags_of(verb):
    command = COMMANDS[verb]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", NAMES)
def test_run_has_a_flag_for_each_field_of_a_spec(name):
    assert "--" + name.replace("_", "-") in flags_of("run")
    assert name in HELP


@pytest.mark.parametrize("verb", ["status", "replay", "table", "figure", "report"])
def test_reading_verbs_choose_runs_by_the_same_flags(verb):
    assert {"--" + name.replace("_", "-") for name in FILTERS} <= flags_of(verb)


def test_a_truth_value_has_a_flag_for_either():
    assert {"--augment", "--no-augment"} <= flags_of("run")
