"""Figure fc_mnist0 (and fc_mnist0_main): clean labels, four fully connected layers."""

from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import ConsecutiveRises, NthRise
from paper.differing import difference
from paper.gap import beside_gap
from paper.making import group_of, stop_numbers, stops, together
from paper.settings import NOISE_FC_MNIST, seconds_of

SETTING = NOISE_FC_MNIST[0.0]


def build(runs: Runs) -> Built:
    """The curves, the correlations with the generalization gap, where disparity stops, and what changes after that."""
    group = group_of(runs, SETTING)
    if group is None or not group.full:
        return Built()
    t1, t2 = (stops(SETTING, "", rule)["gd"] for rule in (NthRise(), ConsecutiveRises()))
    later = {"the end": StoppingMethod(Kind.NEVER), "disparity by t2": t2}
    return together(
        beside_gap(runs, SETTING),
        stop_numbers(group, {"gd.t1": t1, "gd.t2": t2}, ("loss", "error")),
        *(difference(group, f"end-t2.{name}", later, name, only_fired=True) for name in ("loss", "error")),
    )


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
