"""Pages, tables and figures made from records. The same records give the same bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from heldin.lab.figures import label_of
from heldin.lab.report import html_page
from heldin.lab.tables import Markup, Table, element, escape, join
from paper.harness.claims import Verdict
from paper.harness.items import Item, run_order
from paper.harness.running import AS_PRINTED, LAPTOP, Paper, Part
from paper.harness.verdicts import AT_SIZE, CLAIMED, JudgedItem, headline_table, summary

README, REPORT, JUDGING, GALLERY = "README.md", "report.html", "judging.md", "gallery.html"
ITEMS, TABLES, FIGURES = "items", "tables", "figures"
SIZES = {AS_PRINTED: "at the paper's size", LAPTOP: "at laptop size"}
HEADINGS = {profile: text.capitalize() for profile, text in SIZES.items()}

SUMMARY_NOTE = (
    "Each cell has four counts of claims: reproduced / same direction / not reproduced / without a number of ours (not "
    "run, or never stopped). A claim counts twice if both protocols are given. Several numbers may rest on one "
    "comparison, so the sums are not a score."
)
GALLERY_NOTE = (
    "One section per table or figure: what the paper claims, and at each size what we found and the figures. A figure "
    "links to its file."
)
TEXT_COLUMNS = (CLAIMED, "claim", "items", "ours", *AT_SIZE.values(), "compared with", "verdict", "notes")


def write_pages(paper: Paper, parts: Sequence[Part], folder: Path) -> list[Path]:
    """Write the page, what is behind it, and report.html, which contains all of it. Return the files."""
    files = _write_all(paper, parts, folder)
    return [*files, _write(folder / REPORT, report_html(paper, parts, folder))]


def update_paper(paper: Paper, parts: Sequence[Part]) -> list[Path]:
    """Write the page and what is behind it into the paper's folder. Remove files that are outdated."""
    files = _write_all(paper, parts, paper.folder)
    for path in [path for part in (ITEMS, TABLES, FIGURES) for path in (paper.folder / part).rglob("*")]:
        if path.is_file() and path not in files:
            path.unlink()
    return files


def _write_all(paper: Paper, parts: Sequence[Part], folder: Path) -> list[Path]:
    files = [path for part in parts for each in part.items for path in write_result(each, folder, part.profile)]
    files += [_write(_item_path(folder, label), item_page(label, parts)) for label in _labels(parts)]
    files += [_write(folder / name, text) for name, text in ((JUDGING, paper.judging), (GALLERY, gallery(parts)))]
    return [*files, _write(folder / README, readme(paper, parts))]


def _labels(parts: Sequence[Part]) -> list[str]:
    return [*dict.fromkeys(each.item.label for part in parts for each in part.items)]


def write_result(judged: JudgedItem, folder: Path, profile: str) -> list[Path]:
    """Write the tables of an item as markdown and csv, and its figures as png with their data as csv."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    label, files = judged.item.label, []
    for name, content in judged.result.tables.items():
        for suffix, text in (("md", content.markdown() + "\n"), ("csv", content.csv())):
            files.append(_write(folder / file_name(TABLES, label, profile, f"{name}.{suffix}"), text))
    for name, display in judged.result.figures.items():
        path = folder / file_name(FIGURES, label, profile, f"{name}.png")
        data = display.frame().to_csv(index=False, lineterminator="\n", float_format="%.6g")
        files.append(_write(path.with_suffix(".csv"), data))
        axes = display.plot()
        title = axes.get_title() or f"{label}, {_name_in_words(judged, name)}"
        axes.set_title(f"{title}, {SIZES[profile]}", fontsize="small")
        axes.figure.savefig(path, dpi=80, metadata={"Software": None})
        plt.close(axes.figure)
        files.append(path)
    return files


def path_name(text: str) -> str:
    """Return a label or a name as part of a path."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", text)


def file_name(kind: str, label: str, profile: str, name: str) -> str:
    """Return the path of a table or figure, relative to the page. Those at the paper's size have a folder of their own.

    Example:
        >>> file_name("figures", "fig:kfoldl", "paper", "curves.png")
        'figures/fig-kfoldl/paper-size/curves.png'
    """
    stem, _, suffix = name.rpartition(".")
    size = "paper-size/" if profile == AS_PRINTED else ""
    return f"{kind}/{path_name(label)}/{size}{path_name(stem)}.{suffix}"


def _item_path(folder: Path, label: str) -> Path:
    return folder / ITEMS / f"{path_name(label)}.md"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def readme(paper: Paper, parts: Sequence[Part]) -> str:
    """Return the page in markdown: headlines, and links to everything else."""
    found = [_introduction(paper, parts)]
    for heading, table in _headlines(paper, parts):
        found += [f"## {heading}", table.markdown()]
    found += ["## Tables and figures", SUMMARY_NOTE]
    for part in parts:
        found += [f"### {HEADINGS[part.profile]}", _with_links(summary(part.items).markdown(), part)]
    return "\n\n".join(each.strip() for each in found) + "\n"


def _headlines(paper: Paper, parts: Sequence[Part]) -> list[tuple[str, Table]]:
    """Return the tables of headlines that have claims, with their headings."""
    judged = {part.profile: part.items for part in parts}
    found = [
        (heading, headline_table([each for each in paper.headlines if each.further is further], judged))
        for heading, further in (("Headline claims", False), ("Further claims", True))
    ]
    return [(heading, table) for heading, table in found if table.rows]


def _introduction(paper: Paper, parts: Sequence[Part]) -> str:
    num = len(_labels(parts))
    return paper.about.format(
        shown="all items" if num == len(paper.items) else f"only {num} of {len(paper.items)} items",
        runs=" and ".join(f"{_progress(paper, part)} {SIZES[part.profile]}" for part in parts),
    )


def _progress(paper: Paper, part: Part) -> str:
    shown = [each.item for each in part.items]
    everything = part.profile == AS_PRINTED and len(shown) > 1  # items without runs are left out at the paper's size
    wanted = len(run_order(paper.items.values() if everything else shown, part.profile))
    num = len(part.runs.records)
    return f"{num:,} runs" if num == wanted else f"{num:,} of {wanted:,} runs"


def _with_links(text: str, part: Part) -> str:
    """Link each item of the summary to its page."""
    for each in part.items:
        heading = each.item.heading
        text = text.replace(f"\n| {heading} |", f"\n| [{heading}]({ITEMS}/{path_name(each.item.label)}.md) |")
    return text


def item_page(label: str, parts: Sequence[Part]) -> str:
    """Return the page of one item in markdown: what is claimed, and our numbers at each size."""
    found = [(part, each) for part in parts for each in part.items if each.item.label == label]
    item, claims = found[0][1].item, found[0][1].claims
    lines = [f"# {item.heading}", found[0][1].headline + (f" (*{claims[0].where}.*)" if claims else "")]
    if item.missing:
        lines.append(f"**Missing:** {item.missing}.")
    for part, judged in found:
        lines += [f"## {HEADINGS[part.profile]}", *_section(judged, part.profile)]
    return "\n\n".join(line.strip() for line in lines) + "\n\n[All items](../README.md)\n"


def _section(judged: JudgedItem, profile: str) -> list[str]:
    item = judged.item
    lines = [text for text in ((item.laptop, _findings(item)) if profile == LAPTOP else (item.at_paper_size,)) if text]
    numbers = judged.table()
    if numbers.rows:
        lines.append(numbers.markdown().partition("\n\n")[2])  # without the title, which is the heading
    lines += [content.markdown() for name, content in judged.result.tables.items() if item.is_inline(name)]
    links = [
        f"{kind.capitalize()}: "
        + ", ".join(f"[{name}](../{file_name(kind, item.label, profile, f'{name}.{suffix}')})" for name in names)
        for kind, names, suffix in ((TABLES, judged.result.tables, "md"), (FIGURES, judged.result.figures, "png"))
        if names
    ]
    return [*lines, ". ".join(links) + "."] if links else lines


def _findings(item: Item) -> str:
    return f"**Findings:** {item.findings}" if item.findings else ""


def gallery(parts: Sequence[Part]) -> str:
    """Return a page in HTML with every figure, side by side, item by item. Its images are files next to it."""
    links, sections = [], []
    for label in _labels(parts):
        found = [(part.profile, each) for part in parts for each in part.items if each.item.label == label]
        sizes = [_gallery_size(each, profile) for profile, each in found if each.result.figures]
        if sizes:
            judged = found[0][1]
            page = element("a", "numbers and verdicts", href=f"{ITEMS}/{path_name(label)}.md")
            claim = element("p", join([judged.headline, " (", page, ")"], ""))
            anchor = path_name(label)
            links.append(element("a", label, href=f"#{anchor}"))
            sections.append(element("section", join([element("h2", judged.item.heading), claim, *sizes]), id=anchor))
    title = "Figures of the paper, from our records"
    header = join([element("h1", title), element("p", GALLERY_NOTE), element("p", join(links, ", "))])
    return html_page(title, header=header, main=join(sections), images="'self' file:")


def _gallery_size(judged: JudgedItem, profile: str) -> Markup:
    """Return the figures of an item at one size, below what we found at that size."""
    text = judged.item.findings if profile == LAPTOP else judged.item.at_paper_size
    figures = element(
        "div", join(_linked_figure(judged, profile, name) for name in judged.result.figures), class_="gallery"
    )
    found = [element("p", _without_marks(text), class_="soft")] if text else []
    return join([element("h3", HEADINGS[profile]), *found, figures])


def _name_in_words(judged: JudgedItem, name: str) -> str:
    """Return the name of a figure in words; it is made of the parts of a key."""
    return judged.describe(name.replace("-", "."))


def _caption(judged: JudgedItem, name: str) -> str:
    """Return what a figure shows: its own title and curves, if it has them."""
    display = judged.result.figures[name]
    title = getattr(display, "title", "")
    curves = [getattr(display, "name", ""), getattr(display, "watched", ""), *getattr(display, "metrics", ())]
    shown = ", ".join(label_of(curve) for curve in curves if curve)
    return ": ".join(text for text in (title, shown) if text) if title else _name_in_words(judged, name)


def _linked_figure(judged: JudgedItem, profile: str, name: str) -> Markup:
    label, title = judged.item.label, _caption(judged, name)
    path = file_name(FIGURES, label, profile, f"{name}.png")
    image = Markup(f'<img loading="lazy" alt="{escape(f"{label}: {title}")}" src="{escape(path)}">')
    link = element("a", image, href=path)
    return element("figure", element("div", link, class_="card picture"), element("figcaption", title))


def report_html(paper: Paper, parts: Sequence[Part], folder: Path) -> str:
    """Return everything in one file of HTML. The figures are those that `write_result` wrote into `folder`."""
    title, *texts = _paragraphs(_introduction(paper, parts))
    found = []
    for heading, table in _headlines(paper, parts):
        found += [element("h2", heading), _html_table(table)]
    _, *judging = _paragraphs(paper.judging)
    found += [_collapsed("How claims are judged", join(element("p", text) for text in judging))]
    for part in parts:
        found += [element("h2", HEADINGS[part.profile]), element("p", SUMMARY_NOTE), _html_summary(part)]
    found += [_html_section(each, part.profile, folder) for part in parts for each in part.items]
    header = join([element("h1", title), *(element("p", text) for text in texts)])
    return html_page(title, header=header, main=join(found))


def _paragraphs(text: str) -> list[str]:
    return [_without_marks(" ".join(part.split()).lstrip("# ")) for part in text.strip().split("\n\n")]


def _html_section(judged: JudgedItem, profile: str, folder: Path) -> Markup:
    item = judged.item
    found: list[object] = [
        element("h2", f"{item.heading}, {SIZES[profile]}"),
        element("p", judged.headline, class_="conclusion"),
    ]
    about = f"Laptop: {item.laptop}" if profile == LAPTOP else item.at_paper_size
    if about:
        found.append(element("p", _without_marks(about), class_="soft"))
    if item.missing:
        found.append(element("p", f"Missing: {item.missing}.", class_="soft"))
    if item.findings and profile == LAPTOP:
        found.append(element("p", _without_marks(_findings(item))))
    for name in judged.result.figures:
        path = folder / file_name(FIGURES, item.label, profile, f"{name}.png")
        found.append(_html_figure(path, item.label, _caption(judged, name)))
    for name, made in judged.result.tables.items():
        content, heading = _html_table(made), made.title or name
        found += [element("h3", heading), content] if item.is_inline(name) else [_collapsed(heading, content)]
    numbers = judged.table()
    if numbers.rows:
        found.append(_collapsed(f"The paper's numbers next to ours ({len(numbers.rows)})", _html_table(numbers)))
    return element("section", join(found), id=_anchor(item.label, profile))


def _anchor(label: str, profile: str) -> str:
    return f"{profile}-{path_name(label)}"


def _html_summary(part: Part) -> Markup:
    """Return the summary with links to the items."""
    content = summary(part.items)
    links = [element("a", each.item.label, href=f"#{_anchor(each.item.label, part.profile)}") for each in part.items]
    rows = [
        {**row, "item": links[number] if number < len(links) else row["item"]}
        for number, row in enumerate(content.rows)
    ]
    return Table(content.columns, tuple(rows)).html(sentences=TEXT_COLUMNS)


def _html_figure(path: Path, label: str, caption: str) -> Markup:
    title, content = f"{label}: {caption}", base64.b64encode(path.read_bytes()).decode()
    image = Markup(f'<img alt="{escape(title)}" src="data:image/png;base64,{content}">')
    return element("figure", element("div", image, class_="card picture"), element("figcaption", title))


def _collapsed(title: str, content: Markup) -> Markup:
    return element("details", element("summary", title), content)


def _html_table(content: Table) -> Markup:
    return content.html(sentences=TEXT_COLUMNS, row_classes=[_row_class(row.get("verdict")) for row in content.rows])


def _row_class(verdict: object) -> str | None:
    """Highlight claims that were not reproduced under some protocol, and those that were not run."""
    if not isinstance(verdict, str):
        return None
    if Verdict.NOT_REPRODUCED.value in verdict:
        return "failed"
    return "oracle" if verdict.startswith(Verdict.NOT_RUN.value) else None


def _without_marks(text: str) -> str:
    """Return markdown as plain text, with the text of links."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("*", "").replace("`", "")
