"""Figures of an experiment."""

from __future__ import annotations

import math

import matplotlib
import pytest
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.curves import groups
from heldin.lab.figures import ComparisonDisplay, CurvesDisplay, ScatterDisplay, label_of
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.select import outcomes_of
from heldin.lab.spec import RunSpec
from heldin.rules import NthRise

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def record(loss, curve, signal="gradient_disparity", **changes):
    spec = RunSpec(**{"signals": (signal,), **changes})
    return record_of(spec, test_loss=loss, test_error=[y / 8.0 for y in loss], val_loss=loss, **{signal: curve})


RUNS = [
    record([4.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 2.0, 3.0, 4.0]),
    record([4.0, 4.0, 5.0], [2.0, 3.0, 2.0], seed=1),
]
GROUP = group_of(*RUNS)


def bars(ax):
    return {line.get_color(): line.get_xdata()[0] for line in ax.lines if line.get_color() in ("gray", "magenta")}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_curves_are_means_over_the_runs_that_still_train():
    frame = CurvesDisplay(RUNS, "gradient_disparity", patience=2).frame()
    assert frame["epoch"].tolist() == [0, 1, 2, 3, 4]
    assert frame["test_loss"].tolist() == [4.0, 3.0, 4.0, 4.0, 5.0]
    assert frame["test_loss runs"].tolist() == [2, 2, 2, 1, 1]
    assert frame["test_loss std"][1] == pytest.approx(math.sqrt(2.0))
    assert frame["gradient_disparity"].tolist() == [2.0, 3.0, 2.0, 3.0, 4.0]
    assert math.isnan(frame["test_loss std"][4])


def test_a_gray_bar_marks_t1_and_a_magenta_bar_marks_t2():
    display = CurvesDisplay(RUNS, "gradient_disparity", patience=2)
    assert display.bars == {"t1": 3, "t2": 4}
    ax = display.plot()
    assert bars(ax) == {"gray": 3, "magenta": 4}
    marks = ["t1(2): 2nd rise of gradient disparity", "t2(2): 2 rises in a row"]
    assert legend(ax) == ["test loss", "gradient disparity", *marks]
    assert ax.get_legend().get_title().get_text() == "mean and standard deviation over 2 seeds"


def test_the_legend_says_that_curves_are_of_one_run():
    for run, words in [
        (RUNS[0], "one seed"),
        (record([3.0, 2.0, 4.0], [1.0] * 3, fold=0, folds=2), "one run, without one fold"),
    ]:
        assert CurvesDisplay([run], "gradient_disparity").plot().get_legend().get_title().get_text() == words


def test_there_is_no_bar_without_a_stop():
    assert bars(CurvesDisplay(RUNS, "gradient_disparity", patience=5).plot()) == {}


def test_bars_use_the_direction_and_skip_missing_epochs():
    falling = record([1.0] * 5, [None, 3.0, 4.0, 3.0, 2.0], signal="gwa")
    assert CurvesDisplay([falling], "gwa", patience=1).bars == {"t1": 3, "t2": 3}
    folds = [record([3.0, 2.0, 4.0], [1.0] * 3, fold=i, folds=2) for i in (0, 1)]
    assert CurvesDisplay(folds, "val_loss", ("test_loss", "test_error"), patience=1).bars == {"t1": 2, "t2": 2}


def test_two_stops_at_the_same_epoch_are_both_visible():
    ax = CurvesDisplay([record([1.0] * 5, [None, 3.0, 4.0, 3.0, 2.0], signal="gwa")], "gwa", patience=1).plot()
    assert bars(ax) == {"gray": 3, "magenta": 3}
    assert legend(ax)[2:] == ["t1(1): 1st fall of GWA", "t2(1): 1 falls in a row"]
    gray, magenta = (line.get_linewidth() for line in ax.lines[-2:])
    assert gray > magenta
    assert [text.get_text().strip() for text in ax.texts] == ["t1", "t2"]
    assert len({text.get_position()[1] for text in ax.texts}) == 2


def test_the_nth_rise_of_a_metric_can_be_marked_too():
    display = CurvesDisplay(RUNS, "gradient_disparity", patience=2, marked=("test_loss",))
    assert display.bars == {"t1": 3, "t2": 4, "test_loss": 4}
    assert legend(display.plot())[-1] == "2nd rise of test loss"


def test_curves_of_the_same_unit_share_an_axis():
    folds = [record([3.0, 2.0, 4.0], [1.0] * 3, fold=i, folds=2) for i in (0, 1)]
    ax = CurvesDisplay(folds, "val_loss", title="$1").plot()
    assert ax.figure.axes == [ax]
    assert ax.get_ylabel() == "loss"
    assert legend(ax) == ["test loss", "validation loss"]
    assert ax.get_legend().get_title().get_text() == "mean and standard deviation over 2 runs, 2 folds per seed"
    assert ax.get_title() == r"\$1"
    assert CurvesDisplay(folds, "val_loss", ("test_error",)).plot().figure.axes[1].get_ylabel() == "validation loss"
    assert (
        CurvesDisplay(RUNS, "gradient_disparity", ("gradient_disparity",)).plot().get_ylabel() == "gradient disparity"
    )


def test_a_band_ends_at_the_lowest_value_of_all_runs():
    skewed = [record([1.0] * 2, [value, 5.0], seed=seed) for seed, value in enumerate((2.0, 2.0, 30.0))]
    ax = CurvesDisplay(skewed, "gradient_disparity").plot()
    (band,) = ax.figure.axes[1].collections
    assert band.get_paths()[0].vertices[:, 1].min() == 2.0


def test_curves_are_drawn_on_the_given_axes():
    figure, ax = plt.subplots()
    assert CurvesDisplay(RUNS, "gradient_disparity", ("test_loss", "test_error")).plot(ax) is ax
    assert [axis.get_ylabel() for axis in figure.axes] == ["test loss, test error", "gradient disparity"]
    figure.canvas.draw()


def test_a_curve_over_decades_has_a_logarithmic_scale():
    steep = [record([1.0, 1.0, 1.0], [300.0, 3.0, 4.0])]
    ax = CurvesDisplay(steep, "gradient_disparity").plot()
    assert [axis.get_yscale() for axis in ax.figure.axes] == ["linear", "log"]
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("metric", "curves", "scale"),
    [
        ("test_loss", ([3.0, 0.1], [3.0, 0.1]), "log"),
        ("test_loss", ([3.0, 0.2], [3.0, 0.2]), "linear"),
        ("test_loss", ([3.0, -0.1], [3.0, 0.1]), "linear"),  # one run is enough
        ("test_loss", ([3.0, 0.0], [3.0, 0.2]), "linear"),
        ("test_loss", ([3.0, math.nan], [math.inf, 0.1]), "log"),
        ("test_error", ([0.9, 0.01], [0.9, 0.01]), "linear"),  # a fraction
    ],
)
def test_an_axis_is_logarithmic_only_if_all_runs_are_positive(metric, curves, scale):
    runs = [
        record_of(RunSpec(seed=i, signals=("cosine",)), **{metric: c, "cosine": [1.0, 1.0]})
        for i, c in enumerate(curves)
    ]
    ax = CurvesDisplay(runs, "cosine", (metric,)).plot()
    assert ax.get_yscale() == scale
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("val_loss", "validation loss"),
        ("train_error", "training error"),
        ("generalization_loss", "generalization loss"),
        ("test_top5", "test top-5 error"),
        ("parameter_norm", "parameter norm"),
        ("train_val_disparity", "train val disparity"),
        ("gradient_disparity@fixed@s=20", "gradient disparity, fixed batches, 20 batches"),
        ("gradient_variance[rescale=none]", "gradient variance, not re-scaled"),
        (
            "gradient_disparity[normalize=True, rescale=minmax]",
            "gradient disparity, normalize=True, losses mapped to 0..1",
        ),
    ],
)
def test_labels_are_words(name, words):
    assert label_of(name) == words


def test_a_legend_of_long_labels_stays_inside_the_axes():
    noisy = [record([1.0, 2.0], [1.0, 2.0], signal="gradient_disparity[rescale=pooled_std]", seed=i) for i in (0, 1)]
    ax = CurvesDisplay(noisy, noisy[0].spec.signals[0], ("test_loss", "test_error"), patience=1).plot()
    ax.figure.canvas.draw()
    box, axes = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert axes.x0 < box.x0
    assert box.x1 < axes.x1


def test_comparison_bars():
    outcomes = outcomes_of(
        GROUP, [StoppingMethod(Kind.ORACLE_LOSS), StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise(2))]
    )
    display = ComparisonDisplay(outcomes, "test_loss")
    frame = display.frame()
    assert frame["method"].tolist() == ["best epoch by test loss", "gradient_disparity, t1(2)"]
    assert frame["test_loss"].tolist() == [3.0, 4.5]
    ax = display.plot()
    assert [patch.get_width() for patch in ax.patches] == [3.0, 4.5]
    assert ax.get_xlabel() == "test loss\n(each run stopped by its own curve, ± standard deviation)"
    mean = ComparisonDisplay(outcomes, "test_loss", "mean_curve").plot()
    assert mean.get_xlabel().startswith("test loss\n(all runs stopped by the mean curve")
    ax.figure.canvas.draw()


def test_comparing_a_missing_metric_raises():
    with pytest.raises(ArgumentError, match="None of the 2 outcomes has 'test_auc' under per_run"):
        ComparisonDisplay(outcomes_of(GROUP, [StoppingMethod(Kind.NEVER)]), "test_auc").frame()


def test_scatter_with_correlation():
    noisy = record([4.0, 8.0], [math.nan, 9.0], label_noise=0.5)
    display = ScatterDisplay(groups([*RUNS, noisy]), "gradient_disparity")
    frame = display.frame()
    assert len(frame) == 5 + 3 + 1  # the point that is not finite is left out
    assert frame["setting"].nunique() == 2
    assert display.rho == pytest.approx(frame["gradient_disparity"].corr(frame["test_loss"]))
    ax = display.plot()
    assert ax.get_title() == rf"$\rho$ = {display.rho:.3f} over 9 points"
    assert [len(points.get_offsets()) for points in ax.collections] == [8, 1]
    ax.figure.canvas.draw()


def test_a_signal_that_was_not_recorded_raises():
    with pytest.raises(ArgumentError, match="Did you mean 'gradient_disparity'"):
        CurvesDisplay(RUNS, "gradient_disparty").plot()
    with pytest.raises(ArgumentError, match="Did you mean 'test_loss'"):
        ScatterDisplay([GROUP], "gradient_disparity", "tset_loss").frame()
