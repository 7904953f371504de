"""The examples of the README, the documentation and the docstrings are executed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import matplotlib
import pytest

import heldin
from heldin.lab.ways import rule_name
from heldin.rules import ConsecutiveRises, NthRise

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES = [module.name for module in pkgutil.walk_packages(heldin.__path__, "heldin.")]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_code_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert found.failed == 0


def test_public_names_have_docstrings_with_an_example():
    for name in heldin.__all__:
        value = getattr(heldin, name)
        assert value.__doc__, name
        if name not in ("Decision", "StopReason", "theory"):
            assert ">>>" in value.__doc__, name


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_linked_files_exist(page):
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


@pytest.mark.parametrize("page", ["lab.md", "rules.md"])
@pytest.mark.parametrize(
    ("rule", "words"), [(NthRise(5), "p-th rise in all"), (ConsecutiveRises(5), "p rises in a row")]
)
def test_the_short_names_of_rules_are_explained(page, rule, words):
    text = " ".join((ROOT / "docs" / page).read_text().split())
    short = rule_name(rule).replace("5", "p")
    assert f"`{short}`" in text
    assert words in text
