"""Records kept with the code."""

import math

import pytest

from heldin.errors import DamagedRunError
from heldin.lab.costs import UnitSeconds
from heldin.lab.reproducing.committing import read_records, write_records
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord


def test_records_are_read_as_they_were_written(tmp_path):
    spec = RunSpec(dataset="digits", epochs=2, signals=("cosine",))
    lines = ({"epoch": 0, "test_loss": math.inf, "signals": {"cosine": None}},)
    units = {spec.id: UnitSeconds(1.0, 0.1, 0.01, 0.3)}
    assert (
        len(write_records(tmp_path, [RunRecord(spec, lines, True), RunRecord(spec.with_(seed=1), lines, True)], units))
        == 1
    )
    found = read_records(tmp_path, "laptop")
    assert {record.id for record in found.records} == {spec.id, spec.with_(seed=1).id}
    assert found.records[0].epochs == lines
    assert found.units == units
    assert not read_records(tmp_path / "nowhere", "laptop").records
    file = next(tmp_path.glob("*.jsonl"))
    file.write_text(file.read_text().replace('"seed":1', '"seed":2'))
    with pytest.raises(DamagedRunError, match="its spec another one"):
        read_records(tmp_path, "laptop")


def test_a_line_that_was_cut_off_is_named(tmp_path):
    spec = RunSpec(dataset="digits", epochs=2)
    (file,) = write_records(tmp_path, [RunRecord(spec, ({"epoch": 0},), True)], {})
    whole = file.read_text()
    for cut in (whole[:40], '{"id": 1}\n', "3\n"):
        file.write_text(whole + cut)
        with pytest.raises(DamagedRunError, match=rf"Line 2 of .*{file.name} is no record of a run: .*git checkout"):
            read_records(tmp_path, "laptop")
