"""doctor: what is present and what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import heldin as package
from heldin.cli import doctor

CONSTRAINTS = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


@pytest.fixture
def pretend(monkeypatch):
    """A function that changes what versions of packages are found; None is not installed."""
    version = importlib.metadata.version

    def change(**versions):
        def changed(name):
            found = versions.get(name, version) or ""
            if found == "":
                raise importlib.metadata.PackageNotFoundError(name)
            return version(name) if found is version else found

        monkeypatch.setattr(importlib.metadata, "version", changed)

    return change


def test_doctor_shows_versions_cores_data_and_store(heldin, store, tmp_path):
    found = json.loads(heldin("doctor", "--data", tmp_path, "--json").out)
    assert found["heldin"] == package.__version__
    assert found["packages"]["torch"] == importlib.metadata.version("torch")
    assert found["cores"] >= 1
    assert len(found["gpus"]) >= torch.cuda.device_count()
    assert found["data"] == str(tmp_path)
    assert found["datasets"] == ["mnist5k", "digits", "breast_cancer"]
    assert found["num_runs"] == 5
    optional = {line["what"]: line["remedy"] for line in found["datasets_not_present"]}
    assert "heldin data fetch mnist" in optional["mnist"]
    assert found["missing"] == []


def test_doctor_shows_how_to_install_what_is_missing(heldin, pretend, tmp_path):
    pretend(pooch=None, lightning=None)
    answer = heldin("doctor", "--data", tmp_path)
    assert answer.code == 0
    optional, _, missing = answer.out.partition("\nMissing:")
    assert '  lightning: pip install ".[lightning]", in a checkout\n' in optional
    assert '  pooch: pip install ".[lab]", in a checkout\n' in missing


def test_doctor_shows_each_version_beside_the_tested_one_and_datasets_as_optional(heldin, pretend, tmp_path):
    pretend(torch="2.5.0", lightning=None)
    out = heldin("doctor", "--data", tmp_path).out
    packages = out.partition("\nPackages, installed / tested with:\n")[2].partition("\n\n")[0].splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in packages}
    tested = doctor.versions_tested_with(sys.version_info[:2])
    assert [*rows] == [*tested]
    assert (rows["torch"], rows["lightning"]) == (f"2.5.0 / {tested['torch']}", f"- / {tested['lightning']}")
    before, _, datasets = out.partition("\nDatasets that are not present. They are optional")
    assert "heldin data fetch mnist" in datasets
    assert "heldin data fetch" not in before
    assert "Nothing that is needed is missing." in datasets


def test_doctor_names_versions_that_are_not_those_of_the_tests(heldin, pretend, tmp_path):
    tested = doctor.versions_tested_with(sys.version_info[:2])
    pretend(torch=f"{tested['torch']}+cpu", skorch="0.9")
    answer = heldin("doctor", "--data", tmp_path)
    assert f'  skorch 0.9, tested with {tested["skorch"]}: pip install "skorch=={tested["skorch"]}"\n' in answer.out
    assert f"torch {tested['torch']}+cpu, tested" not in answer.out


@pytest.mark.parametrize("python", [(3, 10), (3, 11), (3, 13)])
def test_the_versions_are_those_of_the_constraints(python):
    environment = {"python_version": "{}.{}".format(*python)}
    pins = [Requirement(line) for line in CONSTRAINTS if line and not line.startswith("#")]
    pinned = {pin.name: str(pin.specifier) for pin in pins if pin.marker is None or pin.marker.evaluate(environment)}
    tested = doctor.versions_tested_with(python)
    assert {name: f"=={version}" for name, version in tested.items()} == {name: pinned[name] for name in tested}
    assert {"lightning", "transformers", "accelerate", "skorch", "pytorch-ignite", "keras"} <= set(tested)


def test_devices_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "Some GPU")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert doctor.find_devices() == ["cuda:0 Some GPU"]


def test_doctor_reports_a_store_that_is_not_writable(heldin, tmp_path):
    (tmp_path / "file").touch()
    found = json.loads(heldin("doctor", "--store", "file", "--json").out)
    assert found["writable"] is False
    assert found["missing"][-1] == {"what": "a writable store (file is not)", "remedy": "--store DIR"}
