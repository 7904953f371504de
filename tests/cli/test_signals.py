"""signals: the list, and the documentation of one."""

from __future__ import annotations

import json

from heldin.signals.registry import REGISTRY


def test_every_signal_is_listed(heldin):
    answer = heldin("signals")
    assert answer.code == 0
    assert {line.split()[0] for line in answer.out.splitlines() if line} >= set(REGISTRY)


def test_the_json_list_marks_the_default_signals(heldin):
    rows = {row["name"]: row for row in json.loads(heldin("signals", "--json").out)}
    assert set(rows) == set(REGISTRY)
    assert rows["gradient_disparity"]["default"] is True
    assert rows["gsnr"]["default"] is False
    assert rows["cosine"]["direction"] == "falls"


def test_the_documentation_of_a_signal_is_shown(heldin):
    answer = heldin("signals", "gradient_disparity")
    assert "Misleads when:" in answer.out
    assert "direction: rises\nrule: NthRise(5)\nneeds: BatchGradients\n" in answer.out
    card = json.loads(heldin("signals", "gradient_disparity[rescale=none]", "--json").out)
    assert card["label"] == "gradient_disparity[rescale=none]"
    assert card["card"] in answer.out


def test_a_wrong_name_suggests_the_nearest(refused):
    assert "Did you mean 'cosine'?" in refused("signals", "cosin")
