"""Pages, tables and figures made from records."""

import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heldin.lab.tables import Table
from paper.harness import Item, Result, Runs
from paper.harness.pages import (
    gallery,
    item_page,
    path_name,
    readme,
    report_html,
    update_paper,
    write_pages,
    write_result,
)
from paper.harness.running import Part, build_part
from paper.harness.verdicts import JudgedItem

TABLE = Table(("method", "error"), ({"method": "a|b", "error": 1 / 3},), "Errors")


class Line:
    """A display of two points that keeps the axes it drew on."""

    def __init__(self, title="", name=""):
        self.title, self.name = title, name

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
    written = write_result(judged_item("tab:a", Result({"in words": TABLE}, {"line": Line()})), tmp_path, "laptop")
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
def test_a_figure_has_its_title_or_its_label_and_the_size_and_is_closed(tmp_path, title, drawn):
    line, before = Line(title), plt.get_fignums()
    write_result(judged_item("fig:a", Result(figures={"line": line})), tmp_path, "laptop")
    assert line.axes.get_title() == f"{drawn}, at laptop size"
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("text", "path"), [("tab:kfold", "tab-kfold"), ("a_b-C9", "a_b-C9"), ("../é ", "-----"), ("", "")]
)
def test_path_names_stay_inside_their_folder(text, path):
    assert path_name(text) == path


def test_the_page_has_headlines_and_links_to_every_item(paper, part):
    text = readme(paper, [part])
    assert text.startswith("# A tiny paper\n\nIt shows all items: 2 runs at laptop size.")
    assert (
        "| Errors are high. | 2 of 2 | not run | 1 of 2 | partly (laptop) | tab:tiny, fig:same |"
        in text.partition("## Headline claims")[2]
    )
    assert "| [tab:tiny](items/tab-tiny.md) | Errors are high. |" in text


def test_the_page_of_an_item_has_its_numbers_and_links(part):
    text = item_page("tab:tiny", [part])
    assert text.startswith("# tab:tiny\n\nThe paper claims: Errors are high. (*Table 1.*)\n\n## At laptop size\n\n")
    assert "It is small." in text
    assert "| description of tiny.error | 50 (tolerance 50) |" in text
    assert "It was &lt;never&gt; run" in text
    assert "[errors](../tables/tab-tiny/errors.md)" in text
    assert "[curves](../figures/fig-same/curves.png)" in item_page("fig:same", [part])


def test_only_what_was_built_is_counted(paper, part):
    assert "only 1 of 2 items" in readme(paper, [replace(part, items=part.items[:1])])
    few = replace(part, runs=Runs("laptop", part.runs.records[:1]))
    assert "1 of 2 runs at laptop size" in readme(paper, [few])


def test_items_that_are_not_of_the_paper_claim_nothing(part):
    ours = replace(part, items=[replace(part.items[0], claims=())])
    assert "# tab:tiny\n\nErrors are high.\n\n" in item_page("tab:tiny", [ours])


def test_the_papers_size_stands_first_and_each_size_has_its_own_notes(paper, part, tmp_path):
    item = replace(part.items[0].item, findings="They are higher.", at_paper_size="It is `large`.")
    noted = replace(part.items[0], item=item)
    both = [Part(Runs("paper", part.runs.records), [noted]), replace(part, items=[noted])]
    at_size, _, laptop = item_page("tab:tiny", both).partition("## At laptop size")
    assert "## At the paper's size" in at_size
    assert "It is `large`." in at_size
    assert "It is small" not in at_size
    assert "They are higher" not in at_size
    assert "It is `large`." not in laptop
    assert "(../tables/tab-tiny/paper-size/errors.md)" in at_size
    assert "It is small." in laptop
    assert "**Findings:** They are higher." in laptop
    page = readme(paper, both)
    assert "(laptop)" in page
    assert page.index("### At the paper's size") < page.index("### At laptop size")
    for each in both:
        write_result(noted, tmp_path, each.profile)
    at_size, _, laptop = report_html(paper, both, tmp_path).partition("Laptop: It is small.")
    assert "It is large." in at_size
    assert "It is large." not in laptop


def test_the_gallery_shows_every_figure_that_was_written(paper, part, tmp_path):
    write_pages(paper, [part], tmp_path)
    text = (tmp_path / "gallery.html").read_text()
    shown = re.findall(r'src="([^"]+)"', text)
    assert shown == ["figures/tab-tiny/curves.png", "figures/fig-same/curves.png"]
    assert all((tmp_path / path).is_file() for path in shown)
    assert "The paper claims: Errors are high." in text
    links, sections = (re.findall(pattern, text) for pattern in ('href="#([^"]+)"', '<section id="([^"]+)"'))
    assert links == sections == ["tab-tiny", "fig-same"]


def test_the_gallery_has_the_text_of_each_size_above_its_figures(part):
    item = replace(part.items[0].item, findings="They are higher.", at_paper_size="It is `large`.")
    noted = replace(part.items[0], item=item)
    both = [Part(Runs("paper", part.runs.records), [noted]), replace(part, items=[noted])]
    text = gallery(both)
    places = [text.index(each) for each in ("It is large.", "paper-size/curves.png", "They are higher.")]
    assert places == sorted(places)
    assert text.rindex("curves.png") > places[-1]


def test_a_caption_is_the_title_and_the_quantity_of_a_figure():
    titled = Line("CIFAR-10", "test_loss")
    judged = judged_item("fig:a", Result(figures={"one": titled, "two": Line("")}))
    text = gallery([Part(Runs("laptop", ()), [judged])])
    assert re.findall("<figcaption>(.*?)</figcaption>", text) == ["CIFAR-10: test loss", "two"]


def test_the_report_is_complete_and_loads_nothing(paper, part, tmp_path):
    write_pages(paper, [part], tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "<h1>A tiny paper</h1>" in text
    assert "2 runs at laptop size." in text
    assert "<p>See items.py.</p>" in text
    assert "<p>By rules.</p>" in text
    assert text.count("data:image/png;base64,") == 2
    assert 'href="#laptop-tab-tiny"' in text
    assert 'id="laptop-tab-tiny"' in text
    assert "It was &lt;never&gt; run" in text
    assert "<never>" not in text
    assert "Errors &lt;at&gt; the end" in text
    assert '<tr class="failed">' in text  # an error below 0
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert len(text) < 1_000_000  # without plotly.js, since there are no charts


def test_inline_tables_are_shown_on_the_page_of_the_item_also_without_claims(paper, part, tmp_path):
    judged = part.items[0]
    write_result(judged, tmp_path, "laptop")
    (table,) = judged.result.tables.values()
    inline = [replace(part, items=[replace(judged, item=replace(judged.item, inline=True), claims=())])]
    linked = [replace(part, items=[judged])]
    assert table.markdown() not in item_page("tab:tiny", linked)
    assert table.markdown() in item_page("tab:tiny", inline)
    heading = "<h3>Errors &lt;at&gt; the end</h3>"
    assert heading not in report_html(paper, linked, tmp_path)
    assert heading in report_html(paper, inline, tmp_path)


def test_the_same_records_give_the_same_files(paper, items, store, part, tmp_path):
    written = write_pages(paper, [part], tmp_path / "one")
    files = contents(tmp_path / "one")
    assert {str(path.relative_to(tmp_path / "one")) for path in written} == {*files}
    assert {name for name in files if "/" not in name} == {"README.md", "gallery.html", "judging.md", "report.html"}
    write_pages(paper, [build_part(paper, items, "laptop", store)], tmp_path / "two")
    assert contents(tmp_path / "two") == files


def test_updating_the_paper_removes_outdated_files(paper, part):
    names = ("tables/tab-tiny/before.md", "figures/tab-gone/curves.png", "items/tab-gone.md")
    outdated = [paper.folder / name for name in names]
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from an earlier version")
    update_paper(paper, [part])
    assert (paper.folder / "README.md").exists()
    assert (paper.folder / "tables/tab-tiny/errors.md").exists()
    assert (paper.folder / "claims.toml").exists()
    assert not (paper.folder / "report.html").exists()
    assert not any(path.exists() for path in outdated)
