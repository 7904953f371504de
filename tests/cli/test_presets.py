"""presets: the list, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys

from heldin.presets import PRESETS


def test_every_preset_is_listed_with_its_definition_and_evidence(heldin):
    answer = heldin("presets")
    assert answer.code == 0
    for preset in PRESETS.values():
        assert f"{preset.name}: {preset.summary}" in answer.out
        assert f"  rule: {preset.rule.describe(keywords=False)}\n" in answer.out
        assert all(each.figure in answer.out for each in preset.evidence)


def test_the_json_list_is_that_of_the_library(heldin):
    assert json.loads(heldin("presets", "--json").out) == [preset.as_dict() for preset in PRESETS.values()]


def test_the_list_does_not_import_torch():
    script = "import sys; from heldin.cli.main import main; main(['presets']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=600).returncode == 0
