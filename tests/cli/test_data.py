"""data: list, fetch, check."""

from __future__ import annotations

import json

import numpy
import pytest


def write(path, *, bad=False):
    x = numpy.random.default_rng(0).random((20, 3), dtype=numpy.float32)
    if bad:
        x[3, 1] = numpy.nan
    y = numpy.arange(20) % 2
    numpy.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_the_list_shows_which_datasets_are_present(heldin, tmp_path):
    answer = heldin("data", "list", "--data", tmp_path)
    states = {line.split()[0]: line.split()[1] for line in answer.out.splitlines() if line}
    assert states["mnist5k"] == "embedded"
    assert states["mnist"] == "missing"
    assert f"The data folder is {tmp_path}" in answer.out


def test_the_json_list_has_the_remedies(heldin, tmp_path, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", str(tmp_path))
    found = json.loads(heldin("data", "list", "--json").out)
    assert found["data"] == str(tmp_path)
    sets = {info["name"]: info for info in found["datasets"]}
    assert sets["mrnet"]["state"] == "missing"
    assert "register" in sets["mrnet"]["remedy"]


def test_check_reads_the_named_datasets(heldin, tmp_path):
    write(tmp_path / "mine.npz")
    answer = heldin("data", "check", "digits", "npz:mine", "--data", tmp_path)
    assert answer.code == 0
    assert "digits: 1,437 + 360 test samples of 1 x 8 x 8, 10 classes" in answer.out
    assert "npz:mine: 20 + 20 test samples of 3, 2 classes" in answer.out


def test_check_exits_with_2_if_a_dataset_is_wrong(heldin, tmp_path):
    write(tmp_path / "bad.npz", bad=True)
    answer = heldin("data", "check", "digits", "npz:bad", "--data", tmp_path, "--json")
    assert answer.code == 2
    assert {result["name"]: result["ok"] for result in json.loads(answer.out)} == {"digits": True, "npz:bad": False}
    assert "1 of 2 datasets cannot be used: npz:bad." in answer.err


def test_fetch_does_not_change_present_datasets(heldin, tmp_path):
    write(tmp_path / "mnist.npz")
    before = (tmp_path / "mnist.npz").read_bytes()
    answer = heldin("data", "fetch", "mnist", "digits", "--data", tmp_path)
    assert answer.code == 0
    assert f"mnist: already present, {tmp_path / 'mnist.npz'}" in answer.out
    assert "digits: nothing to fetch" in answer.out
    assert (tmp_path / "mnist.npz").read_bytes() == before


def test_fetch_names_the_registration_page(refused, tmp_path):
    assert "register at https://" in refused("data", "fetch", "mrnet", "--data", tmp_path)


@pytest.mark.parametrize("verb", ["fetch", "check"])
def test_a_wrong_name_raises_before_any_work(refused, tmp_path, verb):
    assert "Did you mean 'mnist'?" in refused("data", verb, "digits", "mnits", "--data", tmp_path)


def test_a_file_is_not_a_data_folder(refused, tmp_path):
    (tmp_path / "file").touch()
    assert "The data root should be a folder." in refused("data", "list", "--data", tmp_path / "file")


def test_the_list_counts_what_is_in_a_file(heldin, tmp_path):
    write(tmp_path / "cifar10.npz")
    (tmp_path / "cifar100.npz").write_text("no archive")
    sizes = {
        info["name"]: info["size"]
        for info in json.loads(heldin("data", "list", "--data", tmp_path, "--json").out)["datasets"]
    }
    assert sizes["cifar10"] == "20 + 20 test, a part of 50,000 + 10,000 test"
    assert sizes["cifar100"] == "50,000 + 10,000 test"
    assert sizes["mnist"] == "60,000 + 10,000 test"
