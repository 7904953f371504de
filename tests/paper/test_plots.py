"""Figures of the paper's items."""

import matplotlib
import pytest

from heldin.lab.curves import Estimate
from heldin.lab.spec import RunSpec
from paper.harness import Runs
from paper.network_names import network_title
from paper.plots import BarsDisplay, ScatterDisplay, SettingCurvesDisplay, SweepDisplay, over_seeds
from paper.settings import BATCHES_VGG, NOISE_MNIST, SIZES_RESNET, SIZES_RESNET_AUGMENTED, WIDTHS_VGG
from paper.sweeps import sweep_title

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def legend_title(ax):
    return ax.get_legend().get_title().get_text()


@pytest.fixture
def group(make_record):
    """A function that returns two runs with this disparity."""

    def group(*values):
        spec = RunSpec(signals=("gradient_disparity", "cosine"))
        curves = {"gradient_disparity": list(values), "cosine": [0.1] * len(values)}
        return Runs("laptop", [make_record(spec.with_(seed=seed), **curves) for seed in (0, 1)]).group(spec)

    return group


@pytest.mark.parametrize(
    ("values", "scale"), [((300.0, 4.0), "log"), ((30.0, 4.0), "linear"), ((300.0, 0.0), "linear")]
)
def test_curves_over_decades_have_a_logarithmic_scale_if_all_are_positive(group, values, scale):
    ax = SettingCurvesDisplay({"a": group(*values), "b": group(5.0, 5.0)}, "gradient_disparity", "title").plot()
    assert ax.get_yscale() == scale
    assert (legend(ax), legend_title(ax), ax.get_title()) == (["a", "b"], "mean over 2 seeds", "title")
    ax.figure.canvas.draw()


def test_curves_of_several_names_share_a_figure(group):
    one = group(3.0, 4.0)
    display = SettingCurvesDisplay({"a": one, "b": one}, "gradient_disparity", names={"b": "cosine"})
    assert display.frame()["gradient_disparity"].tolist() == [3.0, 4.0, 0.1, 0.1]


def test_a_legend_of_long_titles_stays_inside_the_axes(group):
    ax = SettingCurvesDisplay({f"VGG-8, 1,280 samples, rate {i}": group(1.0) for i in range(5)}, "cosine").plot()
    ax.figure.canvas.draw()
    box, axes = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert axes.x0 < box.x0
    assert box.x1 < axes.x1


def test_sweeps_that_are_compared_share_both_axes():
    error, disparity = {1: {0: 0.5, 1: 0.7}, 2: {0: 0.4}}, {1: {0: 5.0, 1: 7.0}}
    one = SweepDisplay("size", {"a": (error, disparity)}, ("error", "disparity"))
    frame = one.frame()
    assert frame["error"].tolist() == pytest.approx([0.6, 0.4])
    assert frame["disparity"][0] == 6.0
    assert frame["disparity std"].isna().tolist() == [False, True]
    assert legend(one.plot()) == ["error", "disparity"]
    ax = SweepDisplay("size", {"a": (error, disparity), "b": (error, disparity)}, one.names).plot()
    assert len(ax.figure.axes) == 2
    assert legend(ax) == ["error, a", "error, b", "disparity, a", "disparity, b"]
    assert legend_title(ax) == "mean and standard deviation over 1 to 2 seeds"


def test_the_bars_of_one_setting_do_not_fill_the_figure():
    display = BarsDisplay({"a": {"disparity": Estimate(70.0, 2.0, 3), "k-fold": Estimate(60.0, None, 3)}}, "accuracy")
    ax = display.plot()
    assert [patch.get_height() for patch in ax.patches] == [70.0, 60.0]
    low, high = ax.get_xlim()
    assert sum(patch.get_width() for patch in ax.patches) < (high - low) / 2
    assert ax.get_ylim()[1] > 72.0 / 0.9  # below the legend
    assert legend_title(ax) == "mean and standard deviation over 3 seeds"


def test_the_line_of_equal_values_is_in_the_legend():
    assert legend(ScatterDisplay({"a": [(1.0, 2.0), (3.0, 4.0)]}, ("x", "y")).plot()) == ["a", "equal"]


@pytest.mark.parametrize(
    ("counts", "words"),
    [([3, 3], "mean over 3 seeds"), ([5, 3, 4], "mean over 3 to 5 seeds"), ([1, 1], "one seed"), ([], "")],
)
def test_seeds_are_counted(counts, words):
    assert over_seeds("mean", counts) == words


@pytest.mark.parametrize(
    ("dataset", "model", "title"),
    [
        ("npz:cifar10-2k", "vgg8", "CIFAR-10, VGG-8"),
        ("mnist5k", "fully_connected", "MNIST, fully connected"),
        ("cifar100", "resnet18", "CIFAR-100, ResNet-18"),
        ("npz:mnist-2k", "alexnet", "MNIST, AlexNet"),
        ("digits", "cnn_batchnorm", "digits, CNN"),
    ],
)
def test_datasets_and_networks_have_titles(dataset, model, title):
    assert network_title(RunSpec(dataset=dataset, model=model)) == title


@pytest.mark.parametrize(
    ("sweeps", "title", "here"),
    [
        ([NOISE_MNIST], "MNIST, AlexNet", "AlexNet, width 1/4"),
        ([BATCHES_VGG], "CIFAR-10, VGG-11", "VGG-11, width 1/8"),
        ([WIDTHS_VGG], "CIFAR-10, VGG-11", "VGG-8"),
        ([SIZES_RESNET_AUGMENTED], "CIFAR-10, ResNet-18, augmented", "ResNet-18, width 1/8"),
        ([SIZES_RESNET_AUGMENTED, SIZES_RESNET], "CIFAR-10, ResNet-18", "ResNet-18, width 1/8"),
    ],
)
def test_the_title_of_a_sweep_is_what_its_settings_share_and_names_the_network_that_was_run(sweeps, title, here):
    assert sweep_title("paper", *sweeps) == title
    assert sweep_title("laptop", *sweeps) == f"{title} (here {here})"


def test_what_is_compared_is_in_one_figure(results):
    assert {*results["fig:DA"].figures} == {"sizes"}
    assert {*results["fig:s"].figures} == {"s"}
    assert legend(results["fig:s"].figures["s"].plot()) == ["2 batches", "5 batches", "10 batches", "20 batches"]
    opt = results["fig:opt"].figures["f"]
    assert opt.title == "(f) CIFAR-10, VGG-11, adadelta (here VGG-8, width 1/4)"
    assert "test_loss" in opt.bars


def test_both_penalties_are_drawn_and_no_label_is_outside_of_the_axes(results):
    ax = results["fig:f1"].figures["f1"].plot()
    assert [text.partition(" ")[0] for text in legend(ax)] == ["L1", "L2", "R1", "R2"]
    ax.figure.canvas.draw()
    box = ax.get_window_extent()
    assert all(text.get_window_extent().y1 < box.y1 for text in ax.texts)


def test_the_table_of_correlations_has_no_identifiers(results):
    rows = results["tab:var"].tables["var"].rows
    assert {row["setting"] for row in rows} >= {"MNIST, AlexNet", "CIFAR-10, VGG-16, 50 % random"}
    assert {row["signal"] for row in rows} == {
        "gradient disparity", "gradient variance", "gradient disparity, not re-scaled",
    }  # fmt: skip
