import os
import pickle

import numpy
import pytest
from heldin.lab.data.pickles import PickledArray, read_pickle

from heldin.errors import DataError


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path, protocol):
    content = pickle.dumps({"data": Malicious(tmp_path / "mark")}, protocol=protocol)
    with pytest.raises(DataError, match="train should be a pickle of .* it asks for .*system"):
        read_pickle(content, "train")
    assert not (tmp_path / "mark").exists()
    pickle.loads(content)
    assert (tmp_path / "mark").exists()  # it would have


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(V1\ntR.",
        b"cnumpy\nload\n(V/etc/hostname\ntR.",
        b"cnumpy.core.multiarray\nfrombuffer\n(tR.",
        b"cnumpy\nndarray.tofile\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"cheldin.lab.data.pickles\nPickledArray\n.",
    ],
)
def test_nothing_but_an_arrays_parts_can_be_named(content):
    with pytest.raises(DataError, match="it asks for"):
        read_pickle(content, "train")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_of_bytes_come_back(protocol, order):
    array = numpy.arange(24, dtype=numpy.uint8).reshape(4, 6).copy(order=order)
    read = read_pickle(pickle.dumps({"data": array, "labels": [1, 2], "name": "x"}, protocol=protocol), "train")
    assert isinstance(read["data"], PickledArray)
    assert numpy.array_equal(read["data"].array, array)
    assert (read["labels"], read["name"]) == ([1, 2], "x")


@pytest.mark.parametrize("kind", ["f8", "i4", "O", "V3", "S2", "u1,u1"])
def test_arrays_of_anything_else_are_refused(kind):
    with pytest.raises(DataError, match="not of bytes"):
        read_pickle(pickle.dumps(numpy.zeros(3, dtype=kind), protocol=4), "train")


def test_an_array_of_another_length_than_it_says_is_refused():
    content = pickle.dumps(numpy.zeros(200, dtype=numpy.uint8), protocol=3)
    shorter = content.replace(bytes(200), bytes(199)).replace(b"C\xc8", b"C\xc7")
    with pytest.raises(DataError, match="has 199 of them"):
        read_pickle(shorter, "train")


@pytest.mark.parametrize("content", [b"", b"\x80", b"no pickle", b"(lp0\n", b"\x80\x04N", b"\xff" * 20])
def test_what_is_no_pickle_is_refused(content):
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(content, "train")
