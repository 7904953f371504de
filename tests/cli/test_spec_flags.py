"""Every field of a spec has its flag, and runs are chosen by the same flags."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer.main

from heldin.cli.app import app
from heldin.cli.spec_flags import FILTERS, TEXTS
from heldin.lab.spec import RunSpec

NAMES = [field.name for field in fields(RunSpec)]


def flags_of(verb):
    command = typer.main.get_command(app).commands[verb]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", NAMES)
def test_run_has_a_flag_for_each_field_of_a_spec(name):
    assert "--" + name.replace("_", "-") in flags_of("run")
    assert name in TEXTS


@pytest.mark.parametrize("verb", ["status", "replay", "table", "figure", "report"])
def test_reading_verbs_choose_runs_by_the_same_flags(verb):
    assert {"--" + name.replace("_", "-") for name in FILTERS} <= flags_of(verb)


def test_a_truth_value_has_a_flag_for_either():
    assert {"--augment", "--no-augment"} <= flags_of("run")
