import gzip
import struct

import numpy
import pytest

from heldin.errors import DataError
from heldin.lab.data.idx import read_idx

IMAGES = numpy.arange(24, dtype=numpy.uint8).reshape(2, 3, 4)
HEAD = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4)
GOOD = HEAD + IMAGES.tobytes()


@pytest.mark.parametrize("content", [GOOD, gzip.compress(GOOD, mtime=0)])
def test_a_file_is_read_gzipped_or_not(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert numpy.array_equal(read_idx(tmp_path / "file", num_dimensions=3), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (b"<html>", "begins with 3c 68 74 6d"),
        (bytes([0, 0, 8, 1]) + GOOD[4:], "3 dimensions"),
        (bytes([0, 0, 0x0D, 3]) + GOOD[4:], "idx file of bytes"),
        (HEAD[:9], "3 dimensions"),
        (GOOD[:-1], "should hold 24 bytes of data, as its head says. Found 23"),
        (GOOD + b"x", "Found 25"),
        (gzip.compress(GOOD, mtime=0)[:-9], "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "file", num_dimensions=3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere cannot be read"):
        read_idx(tmp_path / "nowhere", num_dimensions=3)
