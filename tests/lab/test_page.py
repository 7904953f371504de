"""Pieces of a page: nothing in a text is taken for markup."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from heldin.lab.page import Markup, Row, element, embedded, escaped, facts, joined, page, table

NASTY = "</script><script>alert(1)</script><!-- & ' \""


def test_texts_are_escaped_once_and_markup_never():
    assert escaped("<b>") == "&lt;b&gt;"
    assert escaped(escaped("<b>")) == "&lt;b&gt;"
    assert element("p", "a < b", element("i", "&")) == "<p>a &lt; b<i>&amp;</i></p>"


def test_attributes_are_escaped():
    assert element("p", class_='x" onclick="y') == '<p class="x&quot; onclick=&quot;y"></p>'
    assert element("p", class_=None) == "<p></p>"


def test_every_cell_of_a_table_is_escaped():
    drawn = table([NASTY, NASTY], [Row(NASTY, [NASTY], None)], over=[(NASTY, 1)]) + facts({NASTY: NASTY})
    assert "<script" not in drawn
    assert drawn.count("&lt;script&gt;") == 7


def test_joining_escapes_what_is_not_markup():
    assert joined(["<", Markup("<br>")], "") == "&lt;<br>"


@settings(max_examples=40)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_embedded_json_comes_back_and_cannot_leave_its_element(value):
    text = embedded([value, NASTY])
    assert json.loads(text) == [value, NASTY]
    assert text.isascii()
    assert not {"<", ">", "&"} & {*text}


def test_what_is_put_in_is_not_searched_for_places_again():
    text = page(
        "{{plotly}}", header=element("p", "{{charts}}"), main=Markup(""), footer=Markup(""), charts=["{{main}}"]
    )
    assert "<title>{{plotly}}</title>" in text
    assert "<p>{{charts}}</p>" in text
    assert '["{{main}}"]' in text
    assert text.count("plotly.js v") == 1
