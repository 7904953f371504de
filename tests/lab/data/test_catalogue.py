import pytest
from heldin.lab.data.catalogue import DATASETS

from heldin.errors import ArgumentError, DataError
from heldin.lab import data

EVERY = [
    "mnist5k", "digits", "breast_cancer", "mnist", "cifar10", "cifar100", "breastmnist", "retinamnist", "mrnet",
]  # fmt: skip


def test_the_names_are_those_promised_the_default_first():
    assert data.names() == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_every_dataset_says_what_it_is(name, tmp_path):
    info = data.describe(name, tmp_path)
    assert info.name == name
    assert all([info.about, info.size, info.source, info.licence])
    assert info.state == ("embedded" if name in EVERY[:3] else "missing")
    assert bool(info.remedy) == (info.state == "missing")


@pytest.mark.parametrize("name", EVERY[3:])
def test_what_is_missing_says_where_to_put_it(name, tmp_path):
    with pytest.raises(DataError, match="By hand: ") as raised:
        data.load(name, tmp_path, download=False)
    assert f"The dataset '{name}' is not in {tmp_path}. " in str(raised.value)
    assert "--data or HELDIN_DATA names another folder" in str(raised.value)
    check = data.check(name, tmp_path)
    assert (check.ok, check.path, check.problems) == (False, None, (str(raised.value),))


@pytest.mark.parametrize("name", EVERY[3:-1])
def test_what_is_downloaded_comes_from_its_place_with_a_checksum(name):
    for remote in DATASETS[name].remotes:
        assert len(remote.md5) == 32
        assert all(url.startswith("http") and remote.path.split("/")[-1] in url for url in remote.urls)


@pytest.mark.parametrize(("wrong", "near"), [("mnist5", "mnist5k"), ("cifar", "cifar10"), ("Digits", "digits")])
@pytest.mark.parametrize("ask", [data.load, data.describe, data.fetch, data.check])
def test_unknown_names_get_the_near_match(ask, wrong, near):
    with pytest.raises(ArgumentError, match=f"Found `dataset = '{wrong}'`. Did you mean '{near}'"):
        ask(wrong)


@pytest.mark.parametrize("name", ["", None, 7])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ArgumentError, match="Parameter `dataset` should be one of 'mnist5k'"):
        data.load(name)
