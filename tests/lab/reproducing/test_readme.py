"""The page in markdown."""

from dataclasses import replace

from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.readme import readme


def test_the_page_has_every_item_number_and_link(paper, found, runs):
    text = readme(paper, found, runs)
    assert text.startswith("# A tiny paper\n\nOf the profile **laptop**: 2 runs.")
    assert "| Are errors high? | 2 of 3 | 2 of 2 (2 clearly) | - | tab:tiny, fig:same |" in text
    assert "| in words: tiny.error | 50 |" in text
    assert "It was &lt;never&gt; run" in text
    assert "[errors](tables/tab-tiny/errors.md)" in text
    assert "[curves](figures/fig-same/curves.png)" in text


def test_an_unfinished_sweep_says_so(paper, found, runs):
    text = readme(paper, found, Runs("laptop", runs.records[:1]))
    assert "1 runs of 2, so **the sweep is unfinished**" in text


def test_tables_that_stand_for_themselves_are_on_the_page_and_an_item_without_claims_is_no_trouble(paper, found, runs):
    tiny = next(each for each in found if each.built.tables)
    bare = replace(tiny, item=replace(tiny.item, inline=True), claims=())
    (table,) = tiny.built.tables.values()
    assert table.markdown() not in readme(paper, [tiny], runs)
    assert table.markdown() in readme(paper, [bare], runs)
