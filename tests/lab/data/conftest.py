import os
from pathlib import Path

import numpy
import pytest

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def real_data():
    """The folder with real files; a test that asks for it is skipped where there is none."""
    folder = Path(os.environ.get("HELDIN_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there; HELDIN_DATA names another folder")
    return folder


@pytest.fixture
def real_file(real_data):
    """Look for a file of the real data; skips where it is missing."""

    def look(name):
        if not (real_data / name).exists():
            pytest.skip(f"no real data: {name} is not in {real_data}")
        return real_data

    return look


@pytest.fixture
def write_medmnist(tmp_path):
    """The function that writes a file as MedMNIST has them, black images."""

    def write(name, shape, labels):
        parts = {}
        for part in ("train", "val", "test"):
            parts[f"{part}_images"] = numpy.zeros((len(labels), *shape), numpy.uint8)
            parts[f"{part}_labels"] = numpy.array(labels, numpy.uint8)[:, None]
        numpy.savez(tmp_path / f"{name}.npz", **parts)

    return write
