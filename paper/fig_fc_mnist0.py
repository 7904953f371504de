"""Figure fc_mnist0 (and fc_mnist0_main): clean labels, four fully connected layers."""

from heldin.lab.figures import CurvesDisplay
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.ways import Kind, Way
from heldin.rules import ConsecutiveRises, NthRise
from paper.making import correlations, difference, group_of, stop_numbers, stops
from paper.settings import DISPARITY, NOISE_FC_MNIST, seconds_of

SETTING = NOISE_FC_MNIST[0.0]


def build(runs: Runs) -> Built:
    """The curves, the correlations with the generalization gap, where disparity stops, and what changes after that."""
    group = group_of(runs, SETTING)
    if group is None or not group.full:
        return Built()
    losses, errors = (("train_" + name, "test_" + name, "generalization_" + name) for name in ("loss", "error"))
    figures = {
        "loss": CurvesDisplay(group.full, DISPARITY, losses),
        "error": CurvesDisplay(group.full, DISPARITY, errors),
    }
    numbers = {
        f"rho.{name}": correlations([group], DISPARITY, name)
        for name in ("generalization_loss", "generalization_error")
    }
    ways = {"t1": stops(SETTING, "", NthRise())["gd"], "t2": stops(SETTING, "", ConsecutiveRises())["gd"]}
    numbers |= stop_numbers(group, "gd", ways, ("loss", "error"))
    numbers |= {f"end-t2.{name}": difference(group, Way(Kind.NEVER), ways["t2"], name) for name in ("loss", "error")}
    return Built(figures=figures, numbers={key: value for key, value in numbers.items() if value})


ITEM = Item(
    label="fig:fc_mnist0",
    also=("fig:fc_mnist0_main",),
    claim="For a fully connected network on clean MNIST, gradient disparity goes with the generalization loss, and its "
    "5th rise marks where training and test curves part.",
    stage=2,
    specs=lambda profile: SETTING.full(profile),
    build=build,
    differs="4,000 training samples instead of 60,000, 80 epochs at a rate of 0.1; the network is the paper's. An "
    "epoch has 32 steps instead of 469.",
    seconds=seconds_of,
)
