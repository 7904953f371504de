"""report: one page."""

from __future__ import annotations


def test_the_page_is_written_into_the_store(heldin, store):
    answer = heldin("report", "--title", "Digits & <noise>")
    assert answer.code == 0
    assert answer.out == "The report is in heldin-runs/report.html.\n"
    page = (store / "report.html").read_text()
    assert "Digits &amp; &lt;noise&gt;" in page
    assert "2-fold" in page


def test_the_page_can_be_written_elsewhere(heldin, store, tmp_path):
    assert heldin("report", "--out", "new/page.html", "--label-noise", 0.0).code == 0
    page = (tmp_path / "new" / "page.html").read_text()
    assert "2-fold" not in page


def test_a_path_that_cannot_be_written_raises(refused, store, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "cannot be written" in refused("report", "--out", "file/page.html")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_signal_that_was_not_recorded_raises(refused, store):
    assert "Did you mean 'cosine'?" in refused("report", "--signal", "cosin")
