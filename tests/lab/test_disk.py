"""Files are written at once or not at all."""

import pytest

from heldin.errors import StoreError
from heldin.lab.disk import replace


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    replace(path, lambda file: file.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def half(file):
        file.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left on device. What was recorded before is safe. Make room"):
        replace(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
