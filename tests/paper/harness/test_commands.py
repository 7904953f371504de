"""The commands list, run and build."""

import shutil
from dataclasses import dataclass, replace

import pytest

from paper.harness.commands import main

ROWS = [["tab:tiny", "2", "2", "2"], ["fig:same", "2", "2", "0"], ["all", "2", "2", "2"]]


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def command(paper, capsys, tmp_path, monkeypatch):
    """Call a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELDIN_DATA", raising=False)

    def call(*arguments, of=paper):
        capsys.readouterr()
        options = ["--jobs", "1", "--quiet"] if arguments[:1] == ("run",) else []
        code = main(of, [*map(str, arguments), *options])
        found = capsys.readouterr()
        return Answer(code, found.out, " ".join(found.err.split()))

    return call


def finished(folder):
    return sorted(path.parent for path in folder.rglob("done.json"))


def test_an_item_is_run_once_and_compared(command, tmp_path):
    answer = command("run", "tiny")
    assert answer.code == 0
    assert "2 runs are in heldin-paper. To compare: python -m paper build tiny" in answer.err
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "heldin-paper").rglob("epochs.jsonl")}
    assert len(times) == 2
    assert "Nothing to run: all runs are recorded." in command("run", "same").err
    assert {path: path.stat().st_mtime_ns for path in times} == times
    answer = command("build", "tiny")
    assert answer.code == 0
    assert "| description of tiny.error | 50 (tolerance 50) |" in answer.out
    assert "From 2 of 2 runs of the profile laptop." in answer.err


def test_bundled_runs_give_the_same_files_again(command, paper, tmp_path):
    assert command("run", "all").code == 0
    answer = command("build", "all", "--keep")
    assert answer.code == 0
    assert "2 runs are bundled" in answer.err
    assert "| all |" in answer.out
    (tmp_path / "heldin-paper").rename(tmp_path / "elsewhere")
    assert command("build", "all", "--out", "again").code == 0
    assert not (tmp_path / "heldin-paper").exists()
    for part in ("README.md", "tables/tab-tiny/errors.csv", "figures/fig-same/curves.png"):
        assert (tmp_path / "again" / part).read_bytes() == (paper.folder / part).read_bytes()
    assert (tmp_path / "again" / "report.html").exists()
    (paper.folder / "README.md").unlink()
    assert command("build", "all").code == 0
    assert (paper.folder / "README.md").read_bytes() == (tmp_path / "again" / "README.md").read_bytes()


def test_some_seeds_are_run_and_bundled_while_others_are_missing(command, tmp_path):
    assert command("run", "tiny", "--seeds", "1").code == 0
    assert len(finished(tmp_path / "heldin-paper")) == 1
    assert "1 runs are bundled" in command("build", "all", "--keep").err
    assert "From 1 of 2 runs" in command("build", "tiny").err


def test_only_runs_with_a_text_in_their_title_are_run(command, tmp_path):
    assert command("run", "tiny", "--only", "seed=1").code == 0
    assert len(finished(tmp_path / "heldin-paper")) == 1


def test_the_page_of_the_paper_shows_both_profiles(command, paper):
    assert command("run", "all").code == 0
    assert command("build", "all", "--keep").code == 0
    page = (paper.folder / "README.md").read_text()
    assert "At the paper's size" not in page
    assert command("run", "tiny", "--profile", "paper", "--seeds", "0").code == 0
    assert "1 runs are bundled" in command("build", "all", "--keep", "--profile", "paper").err
    page = (paper.folder / "README.md").read_text()
    assert "1 of 2 runs at the paper's size and 2 runs at laptop size" in page
    assert (paper.folder / "figures/tab-tiny/paper-size/curves.png").exists()
    over = command("build", "tiny", "--out", paper.folder)
    assert over.code == 2
    assert "--out should be an empty folder" in over.err
    assert command("build", "all").code == 0
    assert (paper.folder / "README.md").read_text() == page


def test_damaged_records_are_all_named_and_left_out_or_refused(command, paper, tmp_path):
    assert command("run", "all").code == 0
    assert command("build", "all", "--keep").code == 0
    shutil.rmtree(tmp_path / "heldin-paper")
    (file,) = paper.results("laptop").glob("*.jsonl")
    lines = file.read_text().splitlines()
    assert len(lines) == 2
    page = (paper.folder / "README.md").read_bytes()

    file.write_text(f"{lines[0]}\n{lines[1][:-30]}\n")
    answer = command("build", "tiny")
    assert answer.code == 3
    assert f"Left out: {file}, line 2: it should be JSON." in answer.err
    assert "From 1 of 2 runs" in answer.err
    assert command("build", "all", "--out", "there").code == 3

    file.write_text(f"{lines[0][:-30]}\n{lines[1][:-30]}\n")
    answer = command("build", "all")  # the paper's pages are made of all its records
    assert answer.code == 2
    assert all(f"{file}, line {number}: it should be JSON." in answer.err for number in (1, 2))
    assert (paper.folder / "README.md").read_bytes() == page


def test_items_are_listed_with_their_missing_runs_and_a_legend(command):
    answer = command("list")
    assert answer.out.split()[:5] == ["item", "runs", "missing", "new", "minutes"]
    assert all(f"{column}: " in answer.err for column in ("runs", "missing", "new", "minutes"))
    assert "minutes: the time of the new runs on two cores, known for the profile laptop only." in answer.err
    assert [line.split()[:4] for line in command("list").out.splitlines()[1:]] == ROWS
    assert [line.split()[0] for line in command("list", "same").out.splitlines()[1:]] == ["fig:same", "all"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("build", "tab:tinny"), "Did you mean 'tab:tiny'?"),
        (("run", "TAB:TINY"), "Did you mean 'tab:tiny'?"),
        (("run", ""), "no item ''"),
        (("run",), "Missing argument"),
        (("run", "tiny", "--profile", "desk"), "laptop"),
        (("run", "tiny", "--seeds", "2-0"), "--seeds should be a range or a list"),
        (
            ("run", "tiny", "same", "--rerun", "--seeds", "1-3"),
            "--seeds should be among the seeds of these items in the profile laptop, 0-1. Found 1-3.",
        ),
        (("run", "tiny", "--seeds", "0", "--only", "seed=1"), "--only should be a part of the title of a run"),
        (("run", "tiny", "--data", "README.md"), "The data root should be a folder"),
        (("run", "tiny", "--store", "heldin-paper/new", "--data", "README.md"), "The data root should be a folder"),
        (("run", "tiny", "--only", "typo"), "--only should be a part of the title of a run"),
        (("build", "tiny", "--keep"), "--keep updates the paper's folder"),
        (("build", "all", "--keep", "--out", "there"), "--keep updates the paper's folder"),
        (("build", "all", "--keep", "--store-only"), "--keep updates the paper's folder"),
        (("build", "all", "--keep"), "no runs to bundle in heldin-paper"),
        (("build", "tiny", "--out", "."), "another README.md"),
        (("build", "tiny"), "tab:tiny should have finished runs"),
        (("build", "tiny", "--store", "typo"), "There are no records in typo"),
        (("build", "tiny", "--store-only"), "There are no finished runs of tab:tiny in heldin-paper, and --store-only"),
        (("build", "all", "--store-only", "--store", "typo"), "There are no finished runs of these items in typo"),
    ],
)
def test_invalid_commands_are_refused(command, arguments, words, tmp_path):
    (tmp_path / "README.md").write_text("hello")
    answer = command(*arguments)
    assert answer.code == 2
    assert words in answer.err.replace("│ ", "")
    assert not (tmp_path / "heldin-paper").exists()
    assert (tmp_path / "README.md").read_text() == "hello"


def test_an_item_of_another_profile_is_refused_unless_all_are_named(command, paper):
    tiny, same = paper.items.values()
    large = replace(same, laptop="Too large.", specs=lambda profile: tiny.specs(profile) if profile == "paper" else [])
    other = replace(paper, items={"tab:tiny": tiny, "fig:same": large})
    expected = (
        "paper: fig:same is not run in the profile laptop, only in the profile paper (--profile paper). Too large."
    )
    for name in ("run", "build"):
        answer = command(name, "same", of=other)
        assert (answer.code, answer.err) == (2, expected)
    assert command("run", "all", "--seeds", "0", of=other).code == 0
    assert command("build", "all", "--out", "there", of=other).code == 0


def test_an_item_without_runs_is_built_in_the_laptop_profile_and_never_run(command, paper):
    (tiny, same), drawn = paper.items.values(), lambda profile: []
    other = replace(paper, items={"tab:tiny": tiny, "fig:same": replace(same, specs=drawn)})
    answer = command("run", "same", "--seeds", "7", "--only", "typo", of=other)
    assert (answer.code, answer.err) == (0, "Nothing to run: no runs are needed for same.")
    assert command("build", "same", of=other).code == 0
    answer = command("build", "same", "--profile", "paper", of=other)
    assert answer.code == 2
    assert "fig:same is not run in the profile paper, only in the profile laptop" in answer.err


def test_bundled_records_can_be_ignored(command, tmp_path):
    assert command("run", "all").code == 0
    assert command("build", "all", "--keep").code == 0
    (tmp_path / "heldin-paper").rename(tmp_path / "mine")
    assert "--rerun ignores the bundled records" in command("run", "tiny").err
    assert [line.split()[:4] for line in command("list", "--rerun").out.splitlines()[1:]] == ROWS
    assert "From 2 of 2 runs" in command("build", "tiny", "--store", "mine", "--store-only").err
    answer = command("run", "tiny", "--rerun", "--seeds", "0")
    assert "python -m paper build tiny --store-only" in answer.err
    assert len(finished(tmp_path / "heldin-paper")) == 1
    assert "From 1 of 2 runs" in command("build", "tiny", "--store-only").err
