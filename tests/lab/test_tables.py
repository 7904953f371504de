"""One table in every format, each with its escaping."""

from __future__ import annotations

import csv
import html
import io
import math
import re

import markdown
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.lab.curves import Estimate
from heldin.lab.tables import LATEX, Markup, Table, element, escape, join

NASTY = "</script><script>alert(1)</script><!-- & ' \""
TABLE = Table(
    ("method", "epoch", "loss", "notes"),
    (
        {"method": "a_b, t1(5)", "epoch": 7, "loss": Estimate(0.65551, 0.0803, 5), "notes": "never fired"},
        {"method": "x|y", "epoch": None, "loss": Estimate(12.0, None, 1)},
        {"method": "100 % & more", "epoch": 3, "loss": math.nan, "notes": "never fired"},
    ),
    title="Loss & error_rate",
    bold=frozenset({(0, "loss"), (1, "method")}),
)


def test_the_frame_has_all_digits_and_separate_deviations():
    frame = TABLE.frame()
    assert list(frame.columns) == ["method", "epoch", "loss", "loss std", "notes"]
    assert frame["loss"][0] == 0.65551
    assert frame["loss std"][0] == 0.0803
    assert pd.isna(frame["loss std"][1])
    assert frame["method"][1] == "x|y"


def test_markdown():
    assert TABLE.markdown().splitlines() == [
        "**Loss &amp; error_rate**",
        "",
        "| method | epoch | loss | notes |",
        "| :--- | ---: | ---: | :--- |",
        "| a_b, t1(5) | 7 | **0.656 ± 0.080** | a |",
        "| **x\\|y** | - | 12 |  |",
        "| 100 % &amp; more | 3 | nan | a |",
        "",
        "a: never fired",
    ]
    assert str(TABLE) == TABLE.markdown()


def test_latex():
    assert TABLE.latex().splitlines() == [
        "% Loss & error_rate",
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r"method & epoch & loss & notes \\",
        r"\midrule",
        r"a\_b, t1(5) & $7$ & $\mathbf{0.656}_{\pm 0.080}$ & a \\",
        r"\textbf{x|y} & - & $12$ &  \\",
        r"100 \% \& more & $3$ & $\text{nan}$ & a \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip {\footnotesize a: never fired}",
    ]


def test_csv():
    assert TABLE.csv().splitlines() == [
        "method,epoch,loss,loss std,notes",
        '"a_b, t1(5)",7,0.65551,0.0803,never fired',
        "x|y,,12.0,,",
        "100 % & more,3,nan,,never fired",
    ]


@pytest.mark.parametrize(
    ("cell", "markdown", "latex"),
    [
        (Estimate(1.0, 0.0, 3), "1 ± 0", r"$1_{\pm 0}$"),
        (Estimate(36.96, 0.861, 3), "36.96 ± 0.86", r"$36.96_{\pm 0.86}$"),
        (Estimate(-0.2, 13.0, 5), "0 ± 13", r"$0_{\pm 13}$"),
        (Estimate(1234.5, 250.0, 3), "1234 ± 250", r"$1234_{\pm 250}$"),
        (Estimate(math.inf, math.nan, 2), "inf ± nan", r"$\infty_{\pm \text{nan}}$"),
        (1.5e-7, "1.5e-07", r"$1.5 \cdot 10^{-7}$"),
        (-math.inf, "-inf", r"$-\infty$"),
        (12, "12", "$12$"),
        ("", "", ""),
    ],
)
def test_number_formats(cell, markdown, latex):
    table = Table(("a",), ({"a": cell},))
    assert table.markdown().splitlines()[-1] == f"| {markdown} |"
    assert table.latex().splitlines()[-3] == rf"{latex} \\"


def test_the_notes_column_is_left_out_without_notes():
    table = Table(("a", "notes"), ({"a": 1, "notes": None},))
    assert "notes" not in table.markdown()
    assert "notes" not in table.latex()
    assert list(table.frame().columns) == ["a", "notes"]


def test_notes_have_different_letters():
    rows = tuple({"a": n, "notes": f"note {n}"} for n in range(30))
    lines = Table(("a", "notes"), rows).markdown().splitlines()
    assert lines[2 + 27] == "| 27 | ab |"
    assert "ab: note 27" in lines


@given(st.text("ab,;\"'|= \n\t\u00e9\u4e2d", min_size=1))
def test_csv_round_trip(text):
    table = Table((f"{text}1", "b"), ({f"{text}1": text, "b": "x"},))
    assert list(csv.reader(io.StringIO(table.csv(), newline=""))) == [[f"{text}1", "b"], [text, "x"]]


@given(st.text("ab_*|`<>[](:~\\&$#{}^% \n", min_size=1))
def test_markup_in_texts_is_escaped(text):
    table = Table(("c",), ({"c": f"x{text}x"},))
    shown = markdown.markdown(table.markdown(), extensions=["tables"])
    (cell,) = re.findall(r"<td[^>]*>(.*)</td>", shown)
    assert html.unescape(cell) == " ".join(f"x{text}x".split())
    assert not re.search("<[a-z]", cell)
    plain = table.latex().splitlines()[4].removesuffix(r" \\")
    for escaped in sorted(LATEX.values(), key=len, reverse=True):
        plain = plain.replace(escaped, "")
    assert not set(plain) & set("\\&%$#_{}~^<>")


def test_texts_are_escaped_once():
    assert escape("<b>") == "&lt;b&gt;"
    assert escape(escape("<b>")) == "&lt;b&gt;"
    assert element("p", "a < b", element("i", "&")) == "<p>a &lt; b<i>&amp;</i></p>"


def test_attributes_are_escaped():
    assert element("p", class_='x" onclick="y') == '<p class="x&quot; onclick=&quot;y"></p>'
    assert element("p", class_=None) == "<p></p>"


def test_html_escapes_every_cell_and_every_heading():
    table = Table((NASTY, "b"), ({NASTY: NASTY, "b": NASTY},))
    drawn = table.html(headings=[(NASTY, 1)], titles={"b": NASTY})
    assert "<script" not in drawn
    assert drawn.count("&lt;script&gt;") == 5


def test_html_marks_headings_sentences_and_rows():
    table = Table(("a", "b", "c"), ({"a": 1.5, "b": Markup("<i>x</i>"), "c": None}, {"a": "y"}))
    drawn = table.html(headings=[("both", 2), ("", 1)], sentences=["c"], row_classes=["oracle", None])
    assert '<tr class="over"><th colspan="2" scope="colgroup">both</th>' in drawn
    assert '<tr class="oracle"><th scope="row">1.5</th><td><i>x</i></td><td class="words">-</td></tr>' in drawn
    assert '<tr><th scope="row">y</th><td>-</td><td class="words">-</td></tr>' in drawn


def test_text_is_aligned():
    assert TABLE.text().splitlines()[:2] == [
        "method        epoch  loss           notes",
        "a_b, t1(5)    7      0.656 ± 0.080  never fired",
    ]


def test_columns_come_from_functions_of_items_or_from_rows():
    columns = {"n": lambda n: n, "square": lambda n: n * n}
    made = Table.from_items([1, 3], columns, "Squares")
    assert made == Table.from_rows([{"n": 1, "square": 1}, {"n": 3, "square": 9}], "Squares")
    assert made.columns == ("n", "square")


def test_join_escapes_texts():
    assert join(["<", Markup("<br>")], "") == "&lt;<br>"
