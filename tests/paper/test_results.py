"""The committed page, tables and figures: what the committed records give, to the byte."""

import re

import pytest
from paper.items import ITEMS

from heldin.lab.reproducing.building import build
from heldin.lab.reproducing.committing import read_records, write_records
from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.paper import Paper, load_paper
from heldin.lab.reproducing.readme import readme
from heldin.lab.reproducing.running import gathered
from heldin.lab.reproducing.writing import write

REMEDY = "run `heldin reproduce all --keep`"


@pytest.fixture(scope="module")
def paper(pytestconfig) -> Paper:
    return load_paper(pytestconfig.rootpath / "paper")


def test_everything_is_rebuilt_from_the_records_to_the_byte(paper, tmp_path):
    runs = gathered(paper, ITEMS, "laptop")
    written = write(paper, paper.judged(build(ITEMS, runs)), runs, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in written} - {"report.html"}
    kept = {
        f"{part}/{path.relative_to(paper.folder / part)}"
        for part in ("tables", "figures")
        for path in (paper.folder / part).rglob("*")
        if path.is_file()
    }
    assert names == kept | {"README.md"}, REMEDY
    differing = [name for name in sorted(names) if (tmp_path / name).read_bytes() != (paper.folder / name).read_bytes()]
    assert not differing, REMEDY


def test_what_the_readme_tells_of_it_stands_on_the_page(paper, pytestconfig):
    told = (pytestconfig.rootpath / "README.md").read_text()
    rows = re.findall(r"^\| ((?:Is|Do|Does) .*) \|$", told, re.MULTILINE)
    assert len(rows) > 5
    page = (paper.folder / "README.md").read_text()
    assert [row for row in rows if f"| {row} |" not in page] == []
    runs = len(paper.kept("laptop").records)
    assert f"{runs} runs at a size two cores carry" in told


@pytest.fixture(scope="module")
def built(runs):
    return build(ITEMS, runs)


def test_all_items_and_verdicts_are_on_the_page(paper, built, runs):
    text = readme(paper, paper.judged(built), runs)
    for item in ITEMS:
        assert f"### {item.label}" in text
    for verdict in ("reproduced", "same direction", "not reproduced", "not run"):
        assert verdict in text
    assert f"{len(runs.records)} runs" in text


def test_without_records_everything_is_not_run(paper):
    runs = Runs("laptop", ())
    text = readme(paper, paper.judged(build(ITEMS, runs)), runs)
    assert "| same direction |" in text
    assert "(mean curve)" not in text


def test_records_kept_give_the_same_numbers(built, runs, tmp_path):
    write_records(tmp_path, runs.records, runs.units)
    again = read_records(tmp_path, "laptop")
    for label in ("tab:kfoldl", "tab:var", "costs"):
        item = next(item for item in ITEMS if item.label == label)
        assert item.build(again).numbers == built[label].numbers
