"""All that is made of records, as files: the same bytes each time."""

from heldin.lab.reproducing.building import build
from heldin.lab.reproducing.writing import write, write_kept


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_written_and_is_the_same_each_time(paper, items, runs, found, tmp_path):
    written = write(paper, found, runs, tmp_path / "one")
    files = contents(tmp_path / "one")
    assert {str(path.relative_to(tmp_path / "one")) for path in written} == {*files}
    assert {*files} == {
        "README.md",
        "report.html",
        "tables/tab-tiny/errors.md",
        "tables/tab-tiny/errors.csv",
        "tables/fig-same/errors.md",
        "tables/fig-same/errors.csv",
        "figures/tab-tiny/curves.png",
        "figures/tab-tiny/curves.csv",
        "figures/fig-same/curves.png",
        "figures/fig-same/curves.csv",
    }
    again = paper.judged(build(items, runs))
    write(paper, again, runs, tmp_path / "two")
    assert contents(tmp_path / "two") == files


def test_what_is_kept_with_the_code_has_no_page_and_nothing_stale(paper, runs, found):
    stale = [paper.folder / "tables/tab-tiny/before.md", paper.folder / "figures/tab-gone/curves.png"]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("made by a declaration that is gone")
    write_kept(paper, found, runs)
    assert (paper.folder / "README.md").exists()
    assert (paper.folder / "tables/tab-tiny/errors.md").exists()
    assert (paper.folder / "claims.toml").exists()
    assert not (paper.folder / "report.html").exists()
    assert not any(path.exists() for path in stale)
