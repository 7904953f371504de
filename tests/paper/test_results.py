"""The committed page, tables and figures are what the bundled records give, to the byte."""

import re

from paper.harness import Runs
from paper.harness.items import build_items
from paper.harness.pages import readme, write_pages
from paper.harness.records import read_records, write_records
from paper.harness.running import collect_runs
from paper.items import ITEMS, PAPER

REMEDY = "run `python -m paper build all`"


def test_the_committed_files_are_rebuilt_to_the_byte(tmp_path):
    runs = collect_runs(PAPER, ITEMS, "laptop")
    written = write_pages(PAPER, PAPER.judge(build_items(ITEMS, runs)), runs, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in written} - {"report.html"}
    committed = {
        str(path.relative_to(PAPER.folder))
        for part in ("tables", "figures")
        for path in (PAPER.folder / part).rglob("*")
        if path.is_file()
    }
    assert names == committed | {"README.md"}, REMEDY
    differing = [name for name in sorted(names) if (tmp_path / name).read_bytes() != (PAPER.folder / name).read_bytes()]
    assert not differing, REMEDY


def test_the_project_readme_quotes_the_page(pytestconfig):
    text = (pytestconfig.rootpath / "README.md").read_text()
    rows = re.findall(r"^\| ((?:Is|Do|Does) .*) \|$", text, re.MULTILINE)
    assert len(rows) > 5
    page = (PAPER.folder / "README.md").read_text()
    assert [row for row in rows if f"| {row} |" not in page] == []
    (num,) = re.findall(r"are of the profile \*\*laptop\*\*: (\d+) runs", page)
    assert f"{num} runs" in text


def test_all_items_and_verdicts_are_on_the_page(results, runs):
    text = readme(PAPER, PAPER.judge(results), runs)
    for item in ITEMS:
        assert f"### {item.label}" in text
    for verdict in ("reproduced", "same direction", "not reproduced", "not run"):
        assert verdict in text
    assert f"{len(runs.records)} runs" in text


def test_without_records_nothing_is_run(results):
    runs = Runs("laptop", ())
    text = readme(PAPER, PAPER.judge(build_items(ITEMS, runs)), runs)
    assert "| not run |" in text
    assert "(mean curve)" not in text


def test_bundled_records_give_the_same_numbers(results, runs, tmp_path):
    write_records(tmp_path, runs)
    for label in ("tab:kfoldl", "tab:var", "costs"):
        item = PAPER.items[label]
        assert item.build(read_records(tmp_path, item.specs("laptop"), "laptop")).numbers == results[label].numbers
