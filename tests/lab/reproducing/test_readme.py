"""The page in markdown."""

from dataclasses import replace

from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.readme import readme


def test_the_page_has_every_item_number_and_link(paper, found, runs):
    text = readme(paper, found, runs)
    assert text.startswith("# A tiny paper\n\nOf the profile **laptop**: 2 runs.")
    assert "| Are errors high? | 2 of 2 | 1 of 2 | - | tab:tiny, fig:same |" in text
    assert "| [tab:tiny](#tabtiny) | Errors are high. |" in text
    assert "| in words: tiny.error | 50 (to 50) |" in text
    assert "It was &lt;never&gt; run" in text
    assert "[errors](tables/tab-tiny/errors.md)" in text
    assert "[curves](figures/fig-same/curves.png)" in text


def test_how_the_laptop_differs_and_what_was_found_there_is_said_of_the_laptop_alone(paper, found, runs):
    told = replace(found[0], item=replace(found[0].item, found="They are higher."))
    text = readme(paper, [told], runs)
    assert "*Table 1.* **Laptop:** It is small." in text
    assert "**Found:** They are higher." in text
    other = readme(paper, [told], Runs("paper", runs.records))
    assert "It is small" not in other
    assert "They are higher" not in other


def test_an_unfinished_sweep_says_so(paper, found, runs):
    text = readme(paper, found, Runs("laptop", runs.records[:1]))
    assert "1 runs of 2, so **the sweep is unfinished**" in text


def test_tables_that_stand_for_themselves_are_on_the_page_and_an_item_without_claims_is_no_trouble(paper, found, runs):
    tiny = next(each for each in found if each.built.tables)
    bare = replace(tiny, item=replace(tiny.item, inline=True), claims=())
    (table,) = tiny.built.tables.values()
    assert table.markdown() not in readme(paper, [tiny], runs)
    assert table.markdown() in readme(paper, [bare], runs)
