"""Datasets with fewer test images."""

import numpy
import pytest

from paper import data


@pytest.fixture
def small_cifar(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    chance = numpy.random.default_rng(0)
    for name in ("cifar10", "cifar100"):
        parts = {f"x_{part}": chance.integers(0, 256, (30, 32, 32, 3), dtype=numpy.uint8) for part in ("train", "test")}
        labels = {f"y_{part}": numpy.arange(30, dtype=numpy.uint8) % 10 for part in ("train", "test")}
        numpy.savez(root / f"{name}.npz", **parts, **labels)
    return root


def test_a_reduced_dataset_has_the_first_images(tmp_path, small_cifar, monkeypatch):
    monkeypatch.setattr(data, "NUM_TEST", 20)
    folder = data.prepare_data(tmp_path / "data", small_cifar, [data.CIFAR10])
    whole, reduced = (numpy.load(folder / f"{name}.npz") for name in ("cifar10", "cifar10-2k"))
    assert reduced["x_test"].shape == (20, 3, 32, 32)
    assert (reduced["x_test"] == numpy.moveaxis(whole["x_test"][:20], -1, 1)).all()


def test_only_named_datasets_are_reduced(tmp_path, small_cifar):
    folder = data.prepare_data(tmp_path / "data", small_cifar, ["mnist5k", data.CIFAR100])
    assert (folder / "cifar100-2k.npz").exists()
    assert not (folder / "cifar10-2k.npz").exists()


def test_links_follow_a_new_data_root(tmp_path, small_cifar):
    other = tmp_path / "other"
    other.mkdir()
    for root in (small_cifar, other):
        (root / "mnist5k.npz").write_text(root.name)
    folder = data.prepare_data(tmp_path / "data", small_cifar, [])
    (folder / "own.npz").write_text("own")
    (other / "own.npz").write_text("other")
    data.prepare_data(folder, other, [])
    assert (folder / "mnist5k.npz").read_text() == "other"
    assert (folder / "own.npz").read_text() == "own"  # not a link


def test_links_follow_a_data_root_that_moved(tmp_path, small_cifar):
    folder = data.prepare_data(tmp_path / "data", small_cifar, [])
    moved = small_cifar.rename(tmp_path / "moved")
    data.prepare_data(folder, moved, [])
    assert (folder / "cifar10.npz").resolve() == moved / "cifar10.npz"
