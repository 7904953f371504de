"""Presets: what they stand for, what they are refused with, and the evidence they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from heldin import EarlyStopping, GradientDisparity, NthRise
from heldin.errors import ArgumentError
from heldin.integrations._adapter import Adapter
from heldin.presets import PRESETS, PresetName

ROOT = Path(__file__).parents[1]
LOSS = nn.CrossEntropyLoss()
GIVEN = {
    "signal": "cosine",
    "rule": NthRise(5),
    "patience": 5,
    "batches": 5,
    "probes": "fresh",
    "start_after_fall": 0.1,
    "warmup": 1,
    "layers": "0",
}


def batches(num=8):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(10, 4, generator=generator), torch.randint(3, (10,), generator=generator)) for _ in range(num)]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3))


def test_the_type_names_every_preset():
    assert get_args(PresetName) == tuple(PRESETS) == tuple(preset.name for preset in PRESETS.values())


def test_presets_are_json():
    for preset in PRESETS.values():
        assert json.loads(json.dumps(preset.as_dict())) == preset.as_dict()


def test_the_preset_paper_never_changes():
    assert PRESETS["paper"].definition == {
        "signal": "gradient_disparity[rescale=std]",
        "rule": "NthRise(5)",
        "batches": 5,
        "probes": "fresh",
        "start_after_fall": None,
    }
    stopper = EarlyStopping(net(), LOSS, preset="paper")
    assert list(stopper.signals.values()) == [GradientDisparity(rescale="std")]
    assert stopper.rule == NthRise(5, direction="rises")
    assert (stopper.reader.batches, stopper.reader.probes, stopper.start_after_fall) == (5, "fresh", None)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_measures_what_its_definition_measures(name):
    preset = PRESETS[name]
    written = {**preset.definition, "rule": preset.rule}
    found = [EarlyStopping(net(), LOSS, **options) for options in ({"preset": name}, written)]
    for stopper in found:
        stopper.step(batches())
    assert found[0].state_dict() == found[1].state_dict()
    assert found[0].rule == found[1].rule


@pytest.mark.parametrize("argument", GIVEN)
def test_a_preset_is_refused_together_with_what_it_fixes(argument):
    says = (
        rf"Found `preset = 'paper'` and `{argument}`\. Leave it out, or write .*: "
        r"signal='gradient_disparity\[rescale=std\]', rule=NthRise\(5\), batches=5, probes='fresh'\.$"
    )
    options = {"preset": "paper", argument: GIVEN[argument]}
    with pytest.raises(ArgumentError, match=says):
        EarlyStopping(net(), LOSS, **options)
    with pytest.raises(ArgumentError, match=says):
        Adapter(**options)


def test_the_mode_of_the_model_is_part_of_a_preset():
    EarlyStopping(net(), LOSS, preset="paper", mode="train")
    with pytest.raises(ArgumentError, match="`preset = 'paper'` and `mode`"):
        EarlyStopping(net(), LOSS, preset="paper", mode="eval")


def test_other_arguments_go_with_a_preset():
    stopper = EarlyStopping(net(), LOSS, preset="paper", every=2, keep="lowest", seed=3)
    assert (stopper.every, stopper.keep, stopper.reader.seed) == (2, "lowest", 3)


def test_an_unknown_preset_is_refused_with_the_closest_one():
    with pytest.raises(ArgumentError, match=r"`preset` should be one of 'paper'.*Did you mean 'paper'\?"):
        EarlyStopping(net(), LOSS, preset="papr")


def test_an_adapter_uses_the_preset():
    stopping = Adapter(preset="paper", loss_fn=LOSS)
    stopping.bind(net(), loader=batches())
    stopping.measure_and_decide(batches())
    direct = EarlyStopping(net(), LOSS, preset="paper")
    direct.step(batches())
    assert stopping.stopper.history == direct.history
    assert stopping.stopper.rule == direct.rule


def test_the_evidence_of_the_paper_is_what_its_records_say():
    rows = [line.split(" | ") for line in (ROOT / "paper" / "README.md").read_text().splitlines() if " | " in line]
    found = {row[0].removeprefix("| "): row for row in rows}
    study = (ROOT / "study" / "README.md").read_text()
    for each in PRESETS["paper"].evidence:
        if each.source.endswith("study/README.md"):
            assert each.figure in study
            continue
        row = found[each.claim]
        assert row[3] == each.figure
        assert row[4].split("; ")[-1].startswith(f"{each.verdict} (laptop")  # that of the paper's size comes first
