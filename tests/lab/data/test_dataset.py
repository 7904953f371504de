"""An entry of the catalogue: where its files are."""

from pathlib import Path

import pytest
from heldin.lab.data.catalogue import DATASETS
from heldin.lab.data.dataset import Dataset, first_of

WORDS = {
    "name": "mine",
    "about": "",
    "num_train": 0,
    "num_test": 0,
    "source": "",
    "licence": "",
    "read": lambda _: None,
}


def test_the_first_place_that_exists_is_taken(tmp_path):
    assert first_of(tmp_path, "folder", "file") is None
    (tmp_path / "file").touch()
    assert first_of(tmp_path, "folder", "file") == tmp_path / "file"
    (tmp_path / "folder").mkdir()
    assert first_of(tmp_path, "folder", "file") == tmp_path / "folder"
    assert first_of(tmp_path, "file", "folder") == tmp_path / "file"
    assert first_of(tmp_path) is None


def test_a_dataset_is_located_by_its_own_means(tmp_path):
    found = Dataset(**WORDS, find=lambda root: first_of(root, "file"))
    assert found.locate(tmp_path) is None
    (tmp_path / "file").touch()
    assert found.locate(tmp_path) == tmp_path / "file"


def test_one_that_comes_with_a_package_needs_no_file_and_has_no_sums(tmp_path):
    embedded = Dataset(**WORDS)
    assert embedded.locate(tmp_path) is None
    assert embedded.sums(tmp_path) == []
    assert embedded.remotes == ()


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.find is not None])
def test_what_is_downloaded_is_found_where_it_was_put(name, tmp_path):
    dataset = DATASETS[name]
    for remote in dataset.remotes:
        (tmp_path / remote.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / remote.path).touch()
    found = dataset.locate(tmp_path)
    assert (found is not None) == bool(dataset.remotes)
    assert all(tmp_path / Path(remote.path) in (found, *found.rglob("*")) for remote in dataset.remotes)
