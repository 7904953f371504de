"""A folder that declares a paper."""

from pathlib import Path

import pytest

from heldin.errors import ArgumentError
from heldin.lab.reproducing.paper import load_paper


def test_a_folder_says_what_is_claimed_and_what_is_run(paper):
    assert list(paper.items) == ["tab:tiny", "fig:same"]
    assert [claim.key for claim in paper.claims] == ["tiny.error", "never.run", "tiny.error"]
    assert paper.said("key") == "in words: key"
    assert paper.prepared(Path("put"), "root", ["digits"]) == "root"
    assert not paper.kept("laptop").records


def test_a_folder_without_declarations_is_refused(tmp_path, tiny_paper):
    with pytest.raises(ArgumentError, match="Not there: items.py, claims.toml, about.md"):
        load_paper(tmp_path)
    (tiny_paper / "about.md").unlink()
    with pytest.raises(ArgumentError, match=r"Not there: about.md\. "):
        load_paper(tiny_paper)
