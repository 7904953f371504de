"""The fingerprint of a dataset changes with every sample and label, and with nothing else."""

import os
import shutil

import numpy
import pytest

from heldin.lab.data import fingerprint, load, registry


@pytest.fixture
def root(tmp_path):
    """A data folder with a small file."""
    x, y = numpy.arange(80.0).reshape(20, 4), numpy.arange(20) % 2
    numpy.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    return tmp_path


def test_it_counts_and_hashes_the_samples(root):
    found = fingerprint("npz:mine", root)
    assert found.startswith("20+10-")
    assert found == fingerprint("npz:mine", root, arrays=load("npz:mine", root))


def test_it_does_not_depend_on_the_path_or_the_form_of_the_file(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    numpy.savez_compressed(other / "renamed.npz", **numpy.load(root / "mine.npz"))
    assert fingerprint("npz:renamed", other) == fingerprint("npz:mine", root)


def test_data_of_packages_has_one_and_missing_data_has_none(root):
    assert fingerprint("digits", root).startswith("1437+360-")
    assert fingerprint("npz:nowhere", root) is None


@pytest.mark.parametrize("key", ["x_train", "y_train", "x_test", "y_test"])
@pytest.mark.parametrize("place", [0, -1])
def test_it_changes_with_every_value(root, key, place):
    before = fingerprint("npz:mine", root)
    arrays = dict(numpy.load(root / "mine.npz"))
    arrays[key].reshape(-1)[place] = 1 - arrays[key].reshape(-1)[place]
    numpy.savez(root / "mine.npz", **arrays)
    assert fingerprint("npz:mine", root) != before


def test_it_is_computed_once_for_each_state_of_the_file(root, monkeypatch):
    computed = []
    compute = registry.fingerprint_arrays
    monkeypatch.setattr(registry, "fingerprint_arrays", lambda arrays: computed.append(1) or compute(arrays))
    found = [fingerprint("npz:mine", root) for _ in range(3)]
    assert len({*found}) == len(computed) == 1
    os.utime(root / "mine.npz", (1, 1))
    assert fingerprint("npz:mine", root) == found[0]
    assert len(computed) == 2
    shutil.copy(root / "mine.npz", root / "copy.npz")
    assert fingerprint("npz:copy", root) == found[0]
    assert len(computed) == 3
