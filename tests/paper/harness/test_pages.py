"""Files made from records: tables, figures, README.md and report.html."""

import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heldin.lab.tables import Table
from paper.harness import Item, Result, Runs
from paper.harness.items import build_items
from paper.harness.pages import path_name, readme, report_html, update_paper, write_pages, write_result
from paper.harness.verdicts import JudgedItem

TABLE = Table(("method", "error"), ({"method": "a|b", "error": 1 / 3},), "Errors")


class Line:
    """A display of two points that keeps the axes it drew on."""

    def __init__(self, title=""):
        self.title = title

    def frame(self):
        return pd.DataFrame({"x": [0, 1], "y": [1 / 3, 2.0]})

    def plot(self):
        self.axes = plt.figure().subplots()
        self.axes.plot([0, 1], [1 / 3, 2.0])
        self.axes.set_title(self.title)
        return self.axes


def judged_item(label, result):
    return JudgedItem(Item(label, "", 1, lambda profile: [], lambda runs: result), (), result)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_and_the_data_of_figures_are_written_under_the_label(tmp_path):
    written = write_result(judged_item("tab:a", Result({"in words": TABLE}, {"line": Line()})), tmp_path)
    files = contents(tmp_path)
    names = [
        "tables/tab-a/in-words.md",
        "tables/tab-a/in-words.csv",
        "figures/tab-a/line.csv",
        "figures/tab-a/line.png",
    ]
    assert [str(path.relative_to(tmp_path)) for path in written] == names
    assert {*files} == {*names}
    assert files["tables/tab-a/in-words.md"].decode() == TABLE.markdown() + "\n"
    assert files["tables/tab-a/in-words.csv"].decode() == TABLE.csv()
    assert files["figures/tab-a/line.csv"] == b"x,y\n0,0.333333\n1,2\n"
    assert files["figures/tab-a/line.png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(("title", "drawn"), [("", "fig:a, line"), ("Its title", "Its title")])
def test_a_figure_without_a_title_gets_its_label_and_is_closed(tmp_path, title, drawn):
    line, before = Line(title), plt.get_fignums()
    write_result(judged_item("fig:a", Result(figures={"line": line})), tmp_path)
    assert line.axes.get_title() == drawn
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("text", "path"), [("tab:kfold", "tab-kfold"), ("a_b-C9", "a_b-C9"), ("../é ", "-----"), ("", "")]
)
def test_path_names_stay_inside_their_folder(text, path):
    assert path_name(text) == path


def test_the_readme_has_every_item_number_and_link(paper, judged, runs):
    text = readme(paper, judged, runs)
    assert text.startswith("# A tiny paper\n\nProfile **laptop**: 2 runs.")
    assert "| Are errors high? | 2 of 2 | 1 of 2 | - | tab:tiny, fig:same |" in text
    assert "| [tab:tiny](#tabtiny) | Errors are high. |" in text
    assert "| description of tiny.error | 50 (tolerance 50) |" in text
    assert "It was &lt;never&gt; run" in text
    assert "[errors](tables/tab-tiny/errors.md)" in text
    assert "[curves](figures/fig-same/curves.png)" in text


def test_the_page_names_the_command_and_the_items_it_was_built_from(paper, judged, runs):
    assert "It shows all items: `python -m paper build all`." in readme(paper, judged, runs)
    assert "It shows only 1 of 2 items: `python -m paper build tab:tiny`." in readme(paper, judged[:1], runs)
    other = readme(paper, judged, Runs("paper", runs.records))
    assert "`python -m paper build all --profile paper`" in other


def test_the_headline_of_an_item_is_marked_as_a_claim_of_the_paper(paper, judged, runs):
    assert "\n\nThe paper claims: Errors are high.\n\n" in readme(paper, judged, runs)
    ours = readme(paper, [replace(judged[0], claims=())], runs)
    assert "The paper claims:" not in ours
    assert "\n\nErrors are high.\n\n" in ours


def test_notes_on_the_laptop_profile_are_only_shown_for_it(paper, judged, runs):
    noted = replace(judged[0], item=replace(judged[0].item, findings="They are higher."))
    text = readme(paper, [noted], runs)
    assert "*Table 1.* **Laptop:** It is small." in text
    assert "**Findings:** They are higher." in text
    other = readme(paper, [noted], Runs("paper", runs.records))
    assert "It is small" not in other
    assert "They are higher" not in other


def test_unfinished_experiments_are_marked(paper, judged, runs):
    assert "1 runs of 2, so **the experiments are unfinished**" in readme(
        paper, judged, Runs("laptop", runs.records[:1])
    )


def test_the_report_is_complete_and_loads_nothing(paper, judged, runs, tmp_path):
    write_pages(paper, judged, runs, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "<h1>A tiny paper</h1>" in text
    assert "Profile laptop: 2 runs." in text
    assert "<p>See items.py.</p>" in text
    assert text.count("data:image/png;base64,") == 2
    assert 'href="#tab-tiny"' in text
    assert 'id="tab-tiny"' in text
    assert "It was &lt;never&gt; run" in text
    assert "<never>" not in text
    assert "Errors &lt;at&gt; the end" in text
    assert '<tr class="failed">' in text  # an error below 0
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert len(text) < 1_000_000  # without plotly.js, since there are no charts


def test_inline_tables_are_shown_on_the_page_also_without_claims(paper, judged, runs, tmp_path):
    write_result(judged[0], tmp_path)
    (table,) = judged[0].result.tables.values()
    inline = replace(judged[0], item=replace(judged[0].item, inline=True), claims=())
    assert table.markdown() not in readme(paper, judged[:1], runs)
    assert table.markdown() in readme(paper, [inline], runs)
    assert "<h3>Errors &lt;at&gt; the end</h3>" not in report_html(paper, judged[:1], runs, tmp_path)
    text = report_html(paper, [inline], runs, tmp_path)
    assert "<h3>Errors &lt;at&gt; the end</h3>" in text
    assert "<details>" not in text


def test_the_same_records_give_the_same_files(paper, items, runs, judged, tmp_path):
    written = write_pages(paper, judged, runs, tmp_path / "one")
    files = contents(tmp_path / "one")
    assert {str(path.relative_to(tmp_path / "one")) for path in written} == {*files}
    assert {name for name in files if "/" not in name} == {"README.md", "report.html"}
    write_pages(paper, paper.judge(build_items(items, runs)), runs, tmp_path / "two")
    assert contents(tmp_path / "two") == files


def test_updating_the_paper_removes_outdated_files(paper, runs, judged):
    outdated = [paper.folder / "tables/tab-tiny/before.md", paper.folder / "figures/tab-gone/curves.png"]
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from an earlier version")
    update_paper(paper, judged, runs)
    assert (paper.folder / "README.md").exists()
    assert (paper.folder / "tables/tab-tiny/errors.md").exists()
    assert (paper.folder / "claims.toml").exists()
    assert not (paper.folder / "report.html").exists()
    assert not any(path.exists() for path in outdated)
