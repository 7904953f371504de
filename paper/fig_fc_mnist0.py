"""Figure fc_mnist0 (and fc_mnist0_main): clean labels, four fully connected layers."""

from heldin.lab.methods import Kind, StoppingMethod
from heldin.rules import ConsecutiveRises, NthRise
from paper.differences import metric_difference
from paper.fig_bgp_vs_gen import gap_results
from paper.harness import Item, Result, Runs, merge
from paper.settings import NOISE_FC_MNIST, full_runs, seconds_of
from paper.stops import full_group, stop_numbers, stopping_methods
from paper.sweeps import sweep_title

SETTING = NOISE_FC_MNIST[0.0]


def build(runs: Runs) -> Result:
    """Curves, correlations with the generalization gap, the stops of disparity, and what changes after them."""
    group = full_group(runs, SETTING)
    if group is None:
        return Result()
    t1, t2 = (stopping_methods(SETTING, "", rule)["gd"] for rule in (NthRise(), ConsecutiveRises()))
    methods = {"the end": StoppingMethod(Kind.NEVER), "disparity by t2": t2}
    return merge(
        gap_results(group, sweep_title(runs.profile, NOISE_FC_MNIST)),
        stop_numbers(group, {"gd.t1": t1, "gd.t2": t2}, ("loss", "error")),
        *(metric_difference(group, f"end-t2.{name}", methods, name, only_fired=True) for name in ("loss", "error")),
    )


ITEM = Item(
    label="fig:fc_mnist0",
    other_labels=("fig:fc_mnist0_main",),
    claim="For a fully connected network on clean MNIST, gradient disparity correlates with the generalization loss, "
    "and its 5th rise is where training and test curves diverge.",
    stage=2,
    specs=full_runs([SETTING]),
    build=build,
    laptop="4,000 training samples instead of 60,000, 80 epochs at a learning rate of 0.1. The network is that of the "
    "paper. An epoch has 32 steps instead of 469.",
    at_paper_size="All of MNIST, one seed so far; 100 epochs, since the paper does not say how many it trains. The 5th "
    "rise of disparity is at epoch 11 (paper: 9), soon after the test loss exceeds the training loss (epoch 6), and "
    "long before the test loss is lowest (near epoch 40). Disparity correlates with the generalization loss less than "
    "in the paper.",
    seconds=seconds_of,
)
