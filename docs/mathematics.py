"""A hook of MkDocs: formulas become MathML when the pages are built, so that they need neither a script nor a network.

`pymdownx.arithmatex` marks the formulas of a page; `latex2mathml` converts them.
"""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Return the page with all formulas converted."""
    return FORMULA.sub(_mathml, content)


def _mathml(formula: re.Match[str]) -> str:
    block = formula[2] == "["
    converted = convert(html.unescape(formula[3]).strip(), display="block" if block else "inline")
    return f'<div class="formula">{converted}</div>' if block else converted
