import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def real_data():
    """The folder with real data; tests that use it are skipped if there is none."""
    folder = Path(os.environ.get("HELDIN_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there; HELDIN_DATA names another folder")
    return folder


@pytest.fixture
def real_file(real_data):
    """A function that returns the data folder, or skips the test if a file is missing from it."""

    def look(name):
        if not (real_data / name).exists():
            pytest.skip(f"no real data: {name} is not in {real_data}")
        return real_data

    return look
