"""All that is made of records, as files: the same bytes each time."""

from heldin.lab.reproducing.building import build
from heldin.lab.reproducing.writing import write


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


def test_the_page_can_be_left_out(paper, runs, found, tmp_path):
    write(paper, found, runs, tmp_path, page=False)
    assert not (tmp_path / "report.html").exists()
    assert (tmp_path / "README.md").exists()
