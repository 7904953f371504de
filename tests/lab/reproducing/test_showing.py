"""The page in HTML: whole, and nothing in it that fetches or is taken for markup."""

import re
from dataclasses import replace

from heldin.lab.reproducing.building import write_all
from heldin.lab.reproducing.showing import page_of


def test_the_page_shows_all_of_it_and_needs_nothing_else(paper, found, runs, tmp_path):
    write_all({each.item.label: each.built for each in found}, tmp_path)
    text = page_of(paper, found, runs, tmp_path)
    assert "<h1>A tiny paper</h1>" in text
    assert "Of the profile laptop: 2 runs." in text
    assert "<p>How it was made: items.py.</p>" in text
    assert text.count("data:image/png;base64,") == 2
    assert 'href="#tab-tiny"' in text
    assert 'id="tab-tiny"' in text
    assert "It was &lt;never&gt; run" in text
    assert "<never>" not in text
    assert "Errors &lt;at&gt; the end" in text
    assert '<tr class="failed">' in text  # an error below 0
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "plotly" not in text.lower().replace("plotly.react", "").replace("plotlyserverurl", "").split("<script")[0]
    assert len(text) < 1_000_000  # no plotly.js where there are no charts


def test_tables_that_stand_for_themselves_are_not_folded_away(paper, found, runs, tmp_path):
    write_all({each.item.label: each.built for each in found}, tmp_path)
    tiny = next(each for each in found if each.built.tables)
    assert "<h3>Errors &lt;at&gt; the end</h3>" not in page_of(paper, [tiny], runs, tmp_path)
    open_ = replace(tiny, item=replace(tiny.item, inline=True), claims=())
    text = page_of(paper, [open_], runs, tmp_path)
    assert "<h3>Errors &lt;at&gt; the end</h3>" in text
    assert "<details>" not in text
