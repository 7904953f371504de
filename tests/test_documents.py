"""The code and the facts in the README, the documentation and the docstrings."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import pkgutil
import re
from pathlib import Path

import matplotlib
import pytest

import heldin
from heldin.lab.methods import rule_name
from heldin.rules import ConsecutiveRises, NthRise

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER_PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES = [module.name for module in pkgutil.walk_packages(heldin.__path__, "heldin.")]


def relative(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_code_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_correct(name):
    found = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert found.failed == 0


def test_public_names_have_docstrings_with_an_example():
    for name in heldin.__all__:
        thing = getattr(heldin, name)
        assert thing.__doc__, name
        if name not in ("CaveatKind", "Decision", "StopReason", "theory"):
            assert ">>>" in thing.__doc__, name


def test_examples_are_in_a_section_that_is_rendered_as_code():
    sources = {relative(path): path.read_text() for path in (ROOT / "src").rglob("*.py")}
    assert sum("    Examples:\n" in source for source in sources.values()) > 30
    assert [name for name, source in sources.items() if re.search(r"^ +Example:$", source, re.MULTILINE)] == []


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=relative)
def test_linked_files_exist(page):
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_files_named_in_the_recipes_exist():
    named = re.findall(r"`((?:src|tests|docs|examples)/[\w/.-]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


def program(name):
    """A program in docs/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cards():
    """The program that writes the pages of the signals."""
    return program("cards")


@pytest.fixture(scope="module")
def curves():
    """The program that draws the curves and writes the page of the examples."""
    return program("curves")


def test_curves_are_drawn_from_the_records(curves):
    drawn = curves.drawings()
    images = ROOT / "docs" / "images"
    assert {f"signals/{name}.svg" for name in heldin.signals.REGISTRY} <= set(drawn)
    assert [name for name, text in drawn.items() if (images / name).read_text() != text] == [], "run docs/curves.py"
    assert (ROOT / "docs" / "examples.md").read_text() == curves.gallery(), "run: python docs/curves.py"


def test_recorded_stops_are_those_of_the_default_rules():
    record = json.loads((ROOT / "docs" / "records" / "signals.json").read_text())
    for name in ("gradient_disparity", "label_wave", "evidence_based", "cosine"):
        signal = heldin.signals.REGISTRY[name]
        found = heldin.replay(signal.rule, record["signals"][name], direction=signal.direction)
        assert found.epoch == record["stops"][name], name


def test_formulas_become_mathml():
    mathematics = program("mathematics")
    page = r'<p>a <span class="arithmatex">\(x &lt; y\)</span></p><div class="arithmatex">\[\frac{1}{s}\]</div>'
    converted = mathematics.on_page_content(page)
    assert converted.count("<math") == 2
    assert "<mfrac>" in converted
    assert "arithmatex" not in converted


def test_every_formula_of_a_card_is_understood(cards):
    mathematics = program("mathematics")
    for name, text in cards.FORMULAS.items():
        formulas = re.findall(r"\$\$?(.*?)\$\$?", text, re.DOTALL)
        assert formulas, name
        for formula in formulas:
            converted = mathematics.convert(formula)
            assert "\\" not in converted, (name, formula)  # an unknown command is kept as it is
    assert set(cards.FORMULAS) == set(heldin.signals.REGISTRY)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("name", sorted(heldin.signals.REGISTRY))
def test_a_signal_has_a_page(cards, name):
    page = ROOT / "docs" / "signals" / cards.PAGE_OF[name]
    assert f"\n## {heldin.signals.REGISTRY[name].__name__}\n" in page.read_text()


def test_pages_of_signals_are_up_to_date(cards):
    for file, text in cards.pages().items():
        assert (ROOT / "docs" / "signals" / file).read_text() == text, "run: python docs/cards.py"


def test_every_need_is_documented():
    text = (ROOT / "docs" / "signals" / "your-own.md").read_text()
    for name, need in vars(heldin.needs).items():
        if isinstance(need, type) and issubclass(need, heldin.needs.Need) and need is not heldin.needs.Need:
            assert f"| `{name}(" in text


@pytest.mark.parametrize("page", ["lab.md", "rules.md"])
@pytest.mark.parametrize(
    ("rule", "words"), [(NthRise(5), "p-th rise in all"), (ConsecutiveRises(5), "p rises in a row")]
)
def test_the_short_names_of_rules_are_explained(page, rule, words):
    text = " ".join((ROOT / "docs" / page).read_text().split())
    short = rule_name(rule).replace("5", "p")
    assert f"`{short}`" in text
    assert words in text
