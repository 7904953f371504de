"""Files made from records: tables, figures, README.md and report.html. The same records give the same bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from heldin.lab.report import html_page
from heldin.lab.tables import Markup, Table, element, escape, join
from paper.harness.claims import Verdict
from paper.harness.items import Runs, run_order
from paper.harness.running import LAPTOP, Paper
from paper.harness.verdicts import CLAIMED, JudgedItem, answers, statements, summary

README, REPORT = "README.md", "report.html"
TABLES, FIGURES = "tables", "figures"

QUESTIONS_NOTE = (
    "How many of the claims on a question answer it with yes: in the paper, and here, of those that were run. "
    "*Clearly* and *clearly not*: by more than the standard error over seeds."
)
SUMMARY_NOTE = (
    "The number of claims that are reproduced / have the same direction / are not reproduced / were not run, for "
    "statements and for printed numbers. A claim counts twice if both protocols are given. Several numbers may rest on "
    "one comparison, so the sums are not a score."
)
TEXT_COLUMNS = (CLAIMED, "claim", "items", "ours", "compared with", "verdict", "notes")


def write_pages(paper: Paper, judged: Sequence[JudgedItem], runs: Runs, folder: Path) -> list[Path]:
    """Write tables/, figures/, README.md and report.html, which contains all of them. Return the files."""
    files = _write_readme(paper, judged, runs, folder)
    return [*files, _write(folder / REPORT, report_html(paper, judged, runs, folder))]


def update_paper(paper: Paper, judged: Sequence[JudgedItem], runs: Runs) -> list[Path]:
    """Write README.md, tables/ and figures/ into the paper's folder. Remove outdated tables and figures."""
    files = _write_readme(paper, judged, runs, paper.folder)
    for path in [path for part in (TABLES, FIGURES) for path in (paper.folder / part).rglob("*")]:
        if path.is_file() and path not in files:
            path.unlink()
    return files


def _write_readme(paper: Paper, judged: Sequence[JudgedItem], runs: Runs, folder: Path) -> list[Path]:
    files = [path for each in judged for path in write_result(each, folder)]
    return [*files, _write(folder / README, readme(paper, judged, runs))]


def write_result(judged: JudgedItem, folder: Path) -> list[Path]:
    """Write the tables of an item as markdown and csv, and its figures as png with their data as csv."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    label, files = judged.item.label, []
    for name, content in judged.result.tables.items():
        path = folder / TABLES / path_name(label) / path_name(name)
        files.append(_write(path.with_name(path.name + ".md"), content.markdown() + "\n"))
        files.append(_write(path.with_name(path.name + ".csv"), content.csv()))
    for name, display in judged.result.figures.items():
        path = _figure_path(folder, label, name)
        data = display.frame().to_csv(index=False, lineterminator="\n", float_format="%.6g")
        files.append(_write(path.with_suffix(".csv"), data))
        axes = display.plot()
        if not axes.get_title():
            axes.set_title(f"{label}, {name}", fontsize="small")
        axes.figure.savefig(path, dpi=80, metadata={"Software": None})
        plt.close(axes.figure)
        files.append(path)
    return files


def path_name(text: str) -> str:
    """Return a label or a name as part of a path."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", text)


def _figure_path(folder: Path, label: str, name: str) -> Path:
    return folder / FIGURES / path_name(label) / f"{path_name(name)}.png"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def readme(paper: Paper, judged: Sequence[JudgedItem], runs: Runs) -> str:
    """Return the page in markdown."""
    parts = [_introduction(paper, judged, runs)]
    questions = answers(paper.questions, judged)
    if questions.rows:
        parts += ["## Questions", QUESTIONS_NOTE, questions.markdown()]
    parts += ["## Summary", SUMMARY_NOTE, _with_links(summary(judged).markdown(), judged)]
    parts += ["## Statements", statements(judged).markdown(), "## Items"]
    parts += [_section(each, runs.profile) for each in judged]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _introduction(paper: Paper, judged: Sequence[JudgedItem], runs: Runs) -> str:
    wanted = len(run_order([each.item for each in judged], runs.profile))
    progress = (
        f" of {wanted}, so **the experiments are unfinished**, and verdicts from few seeds may still change"
        if len(runs.records) < wanted
        else ""
    )
    is_all = len(judged) == len(paper.items)
    labels = "all" if is_all else " ".join(each.item.label for each in judged)
    command = f"python -m paper build {labels}" + ("" if runs.profile == LAPTOP else f" --profile {runs.profile}")
    return paper.about.format(
        command=command,
        shown="all items" if is_all else f"only {len(judged)} of {len(paper.items)} items",
        profile=runs.profile,
        num_runs=len(runs.records),
        progress=progress,
    )


def _with_links(text: str, judged: Sequence[JudgedItem]) -> str:
    """Link each item of the summary to its section."""
    for each in judged:
        heading = each.item.heading
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")  # as markdown makes them from headings
        text = text.replace(f"\n| {heading} |", f"\n| [{heading}](#{anchor}) |")
    return text


def _section(judged: JudgedItem, profile: str) -> str:
    item, claims = judged.item, judged.claims
    where = [f"*{claims[0].where}.*"] if claims else []
    laptop = [f"**Laptop:** {item.laptop}"] if profile == LAPTOP else []
    lines = [f"### {item.heading}", judged.headline, " ".join(where + laptop)]
    if item.missing:
        lines.append(f"**Missing:** {item.missing}.")
    if item.findings and profile == LAPTOP:
        lines.append(f"**Findings:** {item.findings}")
    numbers = judged.table()
    if numbers.rows:
        lines.append(numbers.markdown().partition("\n\n")[2])  # without the title, which is the heading
    if item.inline:
        lines += [content.markdown() for content in judged.result.tables.values()]
    links = [
        f"{kind.capitalize()}: {', '.join(_link(kind, item.label, name, suffix) for name in names)}"
        for kind, names, suffix in ((TABLES, judged.result.tables, "md"), (FIGURES, judged.result.figures, "png"))
        if names
    ]
    if links:
        lines.append(". ".join(links) + ".")
    return "\n\n".join(lines)


def _link(kind: str, label: str, name: str, suffix: str) -> str:
    return f"[{name}]({kind}/{path_name(label)}/{path_name(name)}.{suffix})"


def report_html(paper: Paper, judged: Sequence[JudgedItem], runs: Runs, folder: Path) -> str:
    """Return the page in HTML, in one file. The figures are those that `write_result` wrote into `folder`."""
    paragraphs = _introduction(paper, judged, runs).strip().split("\n\n")
    title, *texts = (_without_marks(" ".join(part.split()).lstrip("# ")) for part in paragraphs)
    parts = []
    questions = answers(paper.questions, judged)
    if questions.rows:
        parts += [element("h2", "Questions"), element("p", _without_marks(QUESTIONS_NOTE)), _html_table(questions)]
    parts += [element("h2", "Summary"), element("p", SUMMARY_NOTE), _html_summary(judged)]
    parts += [element("h2", "Statements"), _html_table(statements(judged))]
    parts += [_html_section(each, runs.profile, folder) for each in judged]
    header = join([element("h1", title), *(element("p", text) for text in texts)])
    return html_page(title, header=header, main=join(parts))


def _html_section(judged: JudgedItem, profile: str, folder: Path) -> Markup:
    item = judged.item
    parts: list[object] = [element("h2", item.heading), element("p", judged.headline, class_="conclusion")]
    if profile == LAPTOP:
        parts.append(element("p", f"Laptop: {_without_marks(item.laptop)}", class_="soft"))
    if item.missing:
        parts.append(element("p", f"Missing: {item.missing}.", class_="soft"))
    if item.findings and profile == LAPTOP:
        parts.append(element("p", f"Findings: {_without_marks(item.findings)}"))
    parts += [_html_figure(_figure_path(folder, item.label, name), item.label, name) for name in judged.result.figures]
    for name, made in judged.result.tables.items():
        content, heading = _html_table(made), made.title or name
        parts += [element("h3", heading), content] if item.inline else [_collapsed(heading, content)]
    numbers = judged.table()
    if numbers.rows:
        parts.append(_collapsed(f"The paper's numbers next to ours ({len(numbers.rows)})", _html_table(numbers)))
    return element("section", join(parts), id=path_name(item.label))


def _html_summary(judged: Sequence[JudgedItem]) -> Markup:
    """Return the summary with links to the items."""
    content = summary(judged)
    links = [element("a", each.item.label, href=f"#{path_name(each.item.label)}") for each in judged]
    rows = [
        {**row, "item": links[number] if number < len(links) else row["item"]}
        for number, row in enumerate(content.rows)
    ]
    return Table(content.columns, tuple(rows)).html(sentences=TEXT_COLUMNS)


def _html_figure(path: Path, label: str, name: str) -> Markup:
    title, content = f"{label}: {name}", base64.b64encode(path.read_bytes()).decode()
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
