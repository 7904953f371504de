"""The page: made from the records, and nothing in it that they do not say."""

import pytest
from paper.build import build_all, write_tables
from paper.items import ITEMS
from paper.page import PAGE, RESULTS, page

from heldin.lab.committing import read_records, write_records
from heldin.lab.reproducing import Runs


def test_the_page_is_what_the_records_give():
    runs = read_records(RESULTS / "laptop", "laptop")
    assert PAGE.read_text() == page(ITEMS, build_all(runs), runs), "run `python -m paper.build`"


@pytest.fixture(scope="module")
def built(runs):
    return build_all(runs)


def test_all_items_and_verdicts_are_on_the_page(built, runs):
    text = page(ITEMS, built, runs)
    for item in ITEMS:
        assert f"### {item.label}" in text
    for verdict in ("reproduced", "same direction", "not reproduced", "not run"):
        assert verdict in text
    assert f"{len(runs.records)} runs" in text


def test_without_records_everything_is_not_run():
    runs = Runs("laptop", ())
    text = page(ITEMS, build_all(runs), runs)
    assert "| same direction |" in text
    assert "(mean curve)" not in text


def test_records_kept_give_the_same_numbers(built, runs, tmp_path):
    write_records(tmp_path, runs.records, runs.units)
    again = read_records(tmp_path, "laptop")
    for label in ("tab:kfoldl", "tab:var", "costs"):
        item = next(item for item in ITEMS if item.label == label)
        assert item.build(again).numbers == built[label].numbers


def test_tables_are_written(built, tmp_path):
    write_tables(built["tab:kfoldl"], "tab:kfoldl", tmp_path)
    assert sorted(path.name for path in (tmp_path / "tab-kfoldl").iterdir())[:2] == ["c100_r34.csv", "c100_r34.md"]
