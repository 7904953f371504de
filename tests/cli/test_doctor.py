"""doctor: what is present and what is missing."""

from __future__ import annotations

import importlib.metadata
import json

import torch

import heldin as package


def test_doctor_shows_versions_cores_data_and_store(heldin, store, tmp_path):
    found = json.loads(heldin("doctor", "--data", tmp_path, "--json").out)
    assert found["heldin"] == package.__version__
    assert found["packages"]["torch"] == torch.__version__
    assert found["cores"] >= 1
    assert found["data"] == str(tmp_path)
    assert found["datasets"] == ["mnist5k", "digits", "breast_cancer"]
    assert found["num_runs"] == 5
    missing = {line["what"]: line["remedy"] for line in found["missing"]}
    assert "heldin data fetch mnist" in missing["dataset mnist"]


def test_doctor_shows_how_to_install_missing_packages(heldin, monkeypatch, tmp_path):
    version = importlib.metadata.version

    def without_ray(name):
        if name == "ray":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_ray)
    answer = heldin("doctor", "--data", tmp_path)
    assert answer.code == 0
    assert 'ray: pip install ".[cluster]", in a checkout' in answer.out
    assert f"torch {torch.__version__}" in answer.out


def test_doctor_reports_a_store_that_is_not_writable(heldin, tmp_path):
    (tmp_path / "file").touch()
    found = json.loads(heldin("doctor", "--store", "file", "--json").out)
    assert found["writable"] is False
    assert found["missing"][-1] == {"what": "a writable store (file is not)", "remedy": "--store DIR"}
