"""reproduce: runs what is missing, prints the paper's numbers beside ours."""

from __future__ import annotations

import pytest


@pytest.fixture
def reproduce(heldin, tiny_paper):
    def call(*arguments):
        return heldin("reproduce", *arguments, "--paper", tiny_paper.name, "--jobs", 1, "--quiet")

    return call


def test_an_item_is_run_and_compared_then_not_run_again(reproduce, tmp_path):
    answer = reproduce("tiny")
    assert answer.code == 0
    assert "| in words: tiny.error | 50 (to 50) |" in answer.out
    assert "reproduced" in answer.out
    assert "From 2 of 2 runs of the profile laptop." in answer.err
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "heldin-paper").rglob("epochs.jsonl")}
    assert len(times) == 2
    assert reproduce("same").code == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_all_items_are_kept_and_made_again_from_what_is_kept(reproduce, tiny_paper, tmp_path):
    answer = reproduce("all", "--keep")
    assert answer.code == 0
    assert "2 runs are kept" in answer.err
    assert "| all |" in answer.out
    (tmp_path / "heldin-paper").rename(tmp_path / "elsewhere")
    again = reproduce("all", "--from-records", "--out", "again")
    assert again.code == 0
    assert not (tmp_path / "heldin-paper").exists()
    for part in ("README.md", "tables/tab-tiny/errors.csv", "figures/fig-same/curves.png"):
        assert (tmp_path / "again" / part).read_bytes() == (tiny_paper / part).read_bytes()
    assert (tmp_path / "again" / "report.html").exists()


def test_finished_runs_can_be_kept_while_others_are_still_missing(reproduce, tmp_path):
    assert reproduce("tiny").code == 0
    next((tmp_path / "heldin-paper").rglob("done.json")).unlink()
    assert "1 runs are kept" in reproduce("all", "--keep", "--from-records").err
    assert len([*(tmp_path / "heldin-paper").rglob("done.json")]) == 1  # nothing was run


def test_the_page_kept_with_the_code_is_that_of_the_laptop(reproduce, tiny_paper):
    assert reproduce("all", "--keep").code == 0
    page = (tiny_paper / "README.md").read_bytes()
    answer = reproduce("all", "--keep", "--profile", "paper")
    assert "2 runs are kept" in answer.err
    assert (tiny_paper / "README.md").read_bytes() == page
    assert [*(tiny_paper / "results" / "paper").iterdir()]
    over = reproduce("tiny", "--from-records", "--out", tiny_paper.name)
    assert over.code == 2
    assert "a folder of its own" in over.err
    assert (tiny_paper / "README.md").read_bytes() == page


def test_runs_cannot_be_kept_of_a_store_that_is_none(reproduce):
    answer = reproduce("all", "--keep", "--from-records")
    assert answer.code != 0
    assert "no runs to keep in heldin-paper" in answer.err


def test_the_paper_profile_runs_an_epoch_and_resumes(reproduce, tmp_path):
    assert reproduce("tiny", "--profile", "paper").code == 0
    files = {path: path.read_bytes() for path in (tmp_path / "heldin-paper").rglob("epochs.jsonl")}
    assert all(content.count(b"\n") == 4 for content in files.values())
    for path in files:
        (path.parent / "done.json").unlink()
    assert "From 2 of 2 runs of the profile paper" in reproduce("tiny", "--profile", "paper").err
    assert {path: path.read_bytes() for path in files} == files


def test_what_would_be_run_is_listed(reproduce):
    answer = reproduce("all", "--list")
    rows = [line.split()[:4] for line in answer.out.splitlines()[1:]]
    assert rows == [["tab:tiny", "2", "2", "2"], ["fig:same", "2", "2", "0"], ["all", "2", "2", "2"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tab:tinny",), "Did you mean 'tab:tiny'?"),
        (("tiny", "--profile", "desk"), "laptop"),
        (("tiny", "--keep"), "--keep is for all items"),
        (("all", "--keep", "--out", "there"), "--keep is for all items"),
        (("all", "--keep", "--anew"), "--keep is for all items"),
        ((), "An item should be named"),
        (("",), "no item ''"),
        (("TAB:TINY",), "Did you mean 'tab:tiny'?"),
        (("tiny", "--out", "."), "a README.md of another origin"),
    ],
)
def test_what_cannot_be_is_refused(reproduce, arguments, words, tmp_path):
    (tmp_path / "README.md").write_text("hello")
    answer = reproduce(*arguments)
    assert answer.code == 2
    assert words in answer.err
    assert not (tmp_path / "heldin-paper").exists()
    assert (tmp_path / "README.md").read_text() == "hello"


def test_records_of_a_store_are_made_do_with(reproduce, tmp_path):
    assert reproduce("tiny").code == 0
    assert "From 2 of 2 runs" in reproduce("tiny", "--from-records").err
    (tmp_path / "heldin-paper").rename(tmp_path / "mine")
    assert "From 0 of 2 runs" in reproduce("tiny", "--from-records").err
    assert "From 2 of 2 runs" in reproduce("tiny", "--from-records", "--store", "mine").err
    answer = reproduce("tiny", "--from-records", "--store", "typo")
    assert answer.code != 0
    assert "There are no records in typo" in answer.err


def test_what_came_with_the_code_can_be_left_out(reproduce, tmp_path):
    assert reproduce("all", "--keep").code == 0
    (tmp_path / "heldin-paper").rename(tmp_path / "elsewhere")
    assert "Nothing was run: all of it is recorded. --anew" in reproduce("tiny").err
    assert "From 0 of 2 runs" in reproduce("tiny", "--from-records", "--anew").err
    rows = [line.split()[:4] for line in reproduce("--list", "--anew").out.splitlines()[1:]]
    assert rows == [["tab:tiny", "2", "2", "2"], ["fig:same", "2", "2", "0"], ["all", "2", "2", "2"]]
    assert reproduce("tiny", "--anew").code == 0
    assert len([*(tmp_path / "heldin-paper").rglob("done.json")]) == 2


def test_without_declarations_it_says_where_they_are(refused):
    assert "folder `paper` of heldin's repository" in refused("reproduce", "all")


def test_a_copy_under_another_name_is_told_why_it_cannot_be(heldin, tiny_paper, tmp_path):
    other = tmp_path / "other_paper"
    tiny_paper.rename(other)
    (other / "items.py").write_text("from tiny_paper_of_old import settings\n")
    answer = heldin("reproduce", "all", "--paper", "other_paper")
    assert answer.code == 2
    assert "a copy has to keep that" in answer.err
