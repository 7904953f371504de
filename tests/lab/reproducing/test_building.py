"""From records to files: tables and figures, the same bytes each time."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heldin.lab.figures import CurvesDisplay
from heldin.lab.reproducing.building import build, named, write_all
from heldin.lab.reproducing.items import Built, Item, Runs
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table

SPEC = RunSpec(dataset="digits", epochs=2, signals=("cosine",))
LINES = tuple({"epoch": e, "test_loss": 1 / 3 + e, "signals": {"cosine": 0.5 - e}} for e in (0, 1))
TABLE = Table(("way", "error"), ({"way": "a|b", "error": 1 / 3},), "Errors")


class Line:
    """A display that draws two points, and keeps the axes it drew on."""

    def __init__(self, title=""):
        self.title = title

    def frame(self):
        return pd.DataFrame({"x": [0, 1], "y": [1 / 3, 2.0]})

    def plot(self):
        self.axes = plt.figure().subplots()
        self.axes.plot([0, 1], [1 / 3, 2.0])
        self.axes.set_title(self.title)
        return self.axes


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_item_builds_of_the_same_runs():
    def item(label):
        return Item(label, "", 1, lambda profile: [], lambda runs: Built(numbers={label: {"any": len(runs.records)}}))

    found = build([item("tab:a"), item("fig:b")], Runs("laptop", [RunRecord(SPEC, LINES, True)]))
    assert {label: built.numbers for label, built in found.items()} == {
        "tab:a": {"tab:a": {"any": 1}},
        "fig:b": {"fig:b": {"any": 1}},
    }


def test_tables_and_the_data_of_figures_are_written_under_the_label(tmp_path):
    built = {"tab:a": Built({"in words": TABLE}, {"line": Line()}), "fig:none": Built()}
    written = write_all(built, tmp_path)
    files = contents(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        "tables/tab-a/in-words.md",
        "tables/tab-a/in-words.csv",
        "figures/tab-a/line.csv",
        "figures/tab-a/line.png",
    ]
    assert {*files} == {str(path.relative_to(tmp_path)) for path in written}
    assert files["tables/tab-a/in-words.md"].decode() == TABLE.markdown() + "\n"
    assert files["tables/tab-a/in-words.csv"].decode() == TABLE.csv()
    assert files["figures/tab-a/line.csv"] == b"x,y\n0,0.333333\n1,2\n"
    assert files["figures/tab-a/line.png"].startswith(b"\x89PNG")


def test_the_same_records_give_the_same_bytes(tmp_path):
    built = {"fig:a": Built({"errors": TABLE}, {"curves": CurvesDisplay([RunRecord(SPEC, LINES, True)], "cosine")})}
    for name in ("one", "two"):
        write_all(built, tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_what_was_written_before_is_replaced(tmp_path):
    write_all({"tab:a": Built({"errors": TABLE})}, tmp_path)
    other = Table(("way",), ({"way": "c"},))
    write_all({"tab:a": Built({"errors": other})}, tmp_path)
    assert contents(tmp_path)["tables/tab-a/errors.csv"].decode() == other.csv()


@pytest.mark.parametrize(("title", "drawn"), [("", "fig:a, line"), ("Its own", "Its own")])
def test_a_figure_without_a_title_gets_its_label_and_none_is_left_open(tmp_path, title, drawn):
    line, before = Line(title), plt.get_fignums()
    write_all({"fig:a": Built(figures={"line": line})}, tmp_path)
    assert line.axes.get_title() == drawn
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("text", "path"), [("tab:kfold", "tab-kfold"), ("a_b-C9", "a_b-C9"), ("../é ", "-----"), ("", "")]
)
def test_nothing_in_a_name_leads_out_of_its_folder(text, path):
    assert named(text) == path
