import pytest

from heldin.errors import DataError
from heldin.lab.data import data_root


def test_the_argument_comes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root(str(tmp_path / "argument")) == tmp_path / "argument"


def test_the_variable_comes_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", str(tmp_path))
    assert data_root() == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_without_either_it_is_the_users_cache_folder(value, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HELDIN_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("HELDIN_DATA", value)
    assert data_root().name == "heldin"
    assert not data_root().exists()  # asking makes nothing


def test_a_tilde_is_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/data") == tmp_path / "data"


def test_a_file_is_no_root(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="should be a folder. Found the file"):
        data_root(tmp_path / "file")
