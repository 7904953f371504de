"""The registry of datasets."""

import pytest
import torch

from heldin.errors import ArgumentError, DataError
from heldin.lab import data
from heldin.lab.data import DATASETS, Arrays, Dataset
from heldin.lab.data.files import DataFormat

EVERY = [
    "mnist5k", "digits", "breast_cancer", "mnist", "cifar10", "cifar100", "breastmnist", "retinamnist", "letter",
    "spambase", "wine_quality", "sms_spam", "mrnet",
]  # fmt: skip


def test_the_default_dataset_is_listed_first():
    assert list(data.DATASETS) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_every_dataset_has_a_description(name, tmp_path):
    info = data.describe(name, tmp_path)
    assert info.name == name
    assert all([info.about, info.size, info.source, info.licence])
    assert info.state == ("embedded" if name in EVERY[:3] else "missing")
    assert bool(info.remedy) == (info.state == "missing")


@pytest.mark.parametrize("name", EVERY[3:])
def test_a_missing_dataset_is_an_error_with_instructions(name, tmp_path):
    with pytest.raises(DataError, match="By hand: ") as raised:
        data.load(name, tmp_path, download=False)
    assert f"The dataset '{name}' is not in {tmp_path}. " in str(raised.value)
    assert "--data or HELDIN_DATA names another folder" in str(raised.value)
    check = data.check(name, tmp_path)
    assert (check.ok, check.path, check.problems) == (False, None, (str(raised.value),))


@pytest.mark.parametrize("name", EVERY[3:-1])
def test_downloads_have_checksums_and_are_found_afterwards(name, tmp_path):
    files = DATASETS[name].format
    for download in files.downloads:
        assert len(download.md5) == 32
        assert all(url.startswith("http") and download.path.split("/")[-1] in url for url in download.urls)
        (tmp_path / download.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / download.path).touch()
    found = files.find(tmp_path)
    assert all(tmp_path / download.path in (found, *found.rglob("*")) for download in files.downloads)


@pytest.mark.parametrize(("wrong", "near"), [("mnist5", "mnist5k"), ("cifar", "cifar10"), ("Digits", "digits")])
@pytest.mark.parametrize("ask", [data.load, data.describe, data.fetch, data.check])
def test_unknown_names_are_refused_with_the_nearest_known_one(ask, wrong, near):
    with pytest.raises(ArgumentError, match=f"Found `dataset = '{wrong}'`. Did you mean '{near}'"):
        ask(wrong)


@pytest.mark.parametrize("name", ["", "npz", None, 7])
def test_values_that_are_not_names_are_refused(name):
    with pytest.raises(ArgumentError, match="Parameter `dataset` should be one of 'mnist5k'"):
        data.load(name)


def test_a_new_dataset_is_one_row(monkeypatch):
    x, y = torch.zeros(4, 2), torch.arange(4) % 2
    constant = DataFormat(lambda name, path: Arrays(name, x, y, x, y, 2), needs_files=False)
    monkeypatch.setitem(DATASETS, "mine", Dataset("zeros", (4, 4), "this test", "none", constant))
    assert list(data.DATASETS)[-1] == "mine"
    assert data.load("mine").name == "mine"
    assert (data.describe("mine").state, data.fetch("mine"), data.check("mine").ok) == ("embedded", (), True)
