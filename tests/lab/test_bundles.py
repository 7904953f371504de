"""Bundled records: read as they were written; damaged ones are named."""

import math
import os

import pytest
from tests.records import epoch_line

from heldin.errors import DamagedRunError
from heldin.lab.bundles import COMPRESSED, SUFFIX, read_records, record_files, write_records
from heldin.lab.costs import UnitSeconds
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord

SPEC = RunSpec(dataset="digits", epochs=2, signals=("cosine",))
LINES = tuple(epoch_line(SPEC, epoch) for epoch in (0, 1))


def test_bundled_records_are_read_as_they_were_written(tmp_path):
    specs = [SPEC, SPEC.with_(seed=1)]
    lines = tuple(epoch_line(SPEC, epoch, test_loss=math.inf, signals={"cosine": None}) for epoch in (0, 1))
    seconds = {SPEC.id: UnitSeconds(1.0, 0.1, 0.01, 0.3)}
    (file,) = write_records(tmp_path, [RunRecord(spec, lines, True) for spec in specs], seconds)
    found = read_records(tmp_path, specs)
    assert {record.id for record in found.records} == {spec.id for spec in specs}
    assert found.records[0].epochs == lines
    assert found.unit_seconds == seconds
    assert [record.id for record in read_records(tmp_path, specs[1:]).records] == [specs[1].id]
    assert not read_records(tmp_path / "nowhere", specs).records
    file.write_text(file.read_text().replace('"seed":1', '"seed":2'))
    with pytest.raises(DamagedRunError, match="line 1: `id` should be .*, the hash of the spec"):
        read_records(tmp_path, specs)
    named = []
    assert len(read_records(tmp_path, specs, named.append).records) == 1
    assert len(named) == 1


def test_the_fingerprint_of_the_data_is_bundled_where_there_is_one(tmp_path):
    for data in (None, "20+10-0123456789abcdef"):
        (file,) = write_records(tmp_path, [RunRecord(SPEC, LINES, True, data)], {})
        assert [record.data for record in read_records(tmp_path, [SPEC]).records] == [data]
        assert ('"data"' in file.read_text()) == (data is not None)
    for error in (None, 0.25):
        (file,) = write_records(tmp_path, [RunRecord(SPEC, LINES, True, constant_error=error)], {})
        assert [record.constant_error for record in read_records(tmp_path, [SPEC]).records] == [error]
        assert ("constant_error" in file.read_text()) == (error is not None)


def test_records_of_other_settings_are_not_read(tmp_path):
    other = SPEC.with_(label_noise=0.5)
    records = [RunRecord(spec, LINES, True) for spec in (SPEC, other)]
    assert len(write_records(tmp_path, records, {})) == 2
    record_files(tmp_path, [other])[0].write_text("not a record")
    assert len(read_records(tmp_path, [SPEC]).records) == 1


def test_a_truncated_line_is_named(tmp_path):
    (file,) = write_records(tmp_path, [RunRecord(SPEC, LINES, True)], {})
    whole = file.read_text()
    for cut in (whole[:40], '{"id": 1}\n', "3\n"):
        file.write_text(whole + cut)
        with pytest.raises(DamagedRunError, match=rf"{file.name}, line 2: .*git checkout"):
            read_records(tmp_path, [SPEC])


def test_compressed_records_are_the_same_and_have_the_same_bytes_each_time(tmp_path):
    records = [RunRecord(SPEC, LINES, True)]
    (plain,) = write_records(tmp_path, records, {})
    (file,) = write_records(tmp_path, records, {}, COMPRESSED)
    before = file.read_bytes()
    assert file.name == plain.name + ".gz"
    assert write_records(tmp_path, records, {}, COMPRESSED) == [file]
    assert file.read_bytes() == before
    assert read_records(tmp_path, [SPEC], suffix=COMPRESSED) == read_records(tmp_path, [SPEC], suffix=SUFFIX)


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-20], lambda whole: b"text", lambda whole: whole[:30] + b"x" * 40]
)
def test_a_damaged_compressed_file_is_named(tmp_path, damage):
    (file,) = write_records(tmp_path, [RunRecord(SPEC, LINES, True)], {}, COMPRESSED)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedRunError, match=rf"{file.name} should be .*git checkout"):
        read_records(tmp_path, [SPEC], suffix=COMPRESSED)


def test_what_is_not_a_regular_file_is_named(tmp_path):
    (file,) = record_files(tmp_path, [SPEC])
    os.mkfifo(file)  # reading it would wait for ever
    with pytest.raises(
        DamagedRunError, match=rf"{file.name} should be a file of records. Found another: .*git checkout"
    ):
        read_records(tmp_path, [SPEC])
