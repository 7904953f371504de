"""figure: files in the format of their suffix."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import pytest

from heldin.cli.figure import _draw

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture(autouse=True)
def _no_figure_left():
    matplotlib.use("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--metric", "test_loss", "--metric", "test_error"), "curves.png"),
        (("curves", "--signal", "cosine", "--signal", "label_wave", "--out", "two.svg"), "two.svg"),
        (("comparison", "--out", "new/bars.pdf"), "new/bars.pdf"),
        (("scatter", "--signal", "cosine", "--metric", "generalization_loss", "--out", "s.png"), "s.png"),
    ],
)
def test_a_figure_is_written(heldin, store, tmp_path, flags, name):
    before = plt.get_fignums()
    answer = heldin("figure", *flags)
    path = store / name if name == "curves.png" else tmp_path / name
    assert answer.code == 0
    assert answer.out == f"The figure is in {path.relative_to(tmp_path)}.\n"
    assert path.read_bytes().startswith(BEGINNINGS[path.suffix])
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("curve",), "Did you mean 'curves'?"),
        (("--out", "x.gif"), "--out should end with .png or .svg or .pdf. Found x.gif. Choose one of these."),
        (("--metric", "test_los"), "Did you mean 'test_loss'?"),
        (("--signal", "cosin"), "Did you mean 'cosine'?"),
        (("comparison", "--metric", "test_loss", "--metric", "test_error"), "draws one metric. Found test_loss, test"),
        (("--patience", 0), "`--patience` should be an integer of at least 1"),
    ],
)
def test_wrong_options_raise(refused, store, tmp_path, flags, words):
    assert words in refused("figure", *flags)
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("title", ["short", "num_samples=500 label_noise=0.5 " * 5])
def test_the_title_of_bars_with_long_names_is_not_cut_off(tmp_path, monkeypatch, title):
    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)

    class Bars:
        def plot(self, ax):
            ax.barh([0], [1.0])
            ax.set_yticks([0], ["gradient_disparity[rescale=pooled_std]@fixed, t1(5), rolled back"])

    _draw([(title, 3.0, Bars())], tmp_path / "bars.png")
    (figure,) = drawn
    box = figure.axes[0].title.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
