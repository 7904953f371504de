"""Figure fc_mnist: label noise on MNIST, four fully connected layers."""

from heldin.lab.curves import Estimate
from paper.correlations import difference_by_seed, mean_by_seed, trend, values_by_seed
from paper.harness import Item, Result, RunGroup, Runs, merge
from paper.settings import DISPARITY, NOISE_FC_MNIST, full_runs, seconds_of
from paper.sweeps import complete_sweep, early_mean, noise_sweep

MIDDLE_LEVELS = (0.25, 0.5, 0.75)
"""Levels whose generalization loss is lower than without noise, in the middle of training."""


def build(runs: Runs) -> Result:
    """The sweep over label noise, and the generalization loss early and in the middle of training."""
    groups = complete_sweep(runs, NOISE_FC_MNIST)
    early = [early_mean(group, "generalization_loss") for group in groups.values()]
    numbers = {"fc_mnist.order.gap_loss": trend(early)}
    if groups:
        numbers["fc_mnist.middle.gap_loss"] = _clean_minus_noisy(groups, "generalization_loss")
        numbers["fc_mnist.middle.disparity"] = _clean_minus_noisy(groups, DISPARITY)
    return merge(noise_sweep(runs, "fc_mnist", NOISE_FC_MNIST), Result.from_numbers(numbers))


def _clean_minus_noisy(groups: dict[float, RunGroup], name: str) -> dict[str, Estimate]:
    """Return by how much a curve is higher without noise than at the highest of the middle levels, seed by seed."""
    clean, *noisy = (_middle_mean(groups[level], name) for level in (0.0, *MIDDLE_LEVELS))
    return difference_by_seed(clean, {seed: max(each) for seed, each in values_by_seed(noisy).items()})


def _middle_mean(group: RunGroup, name: str) -> dict[int, float]:
    """Return the mean of a curve over the middle third of the epochs."""
    num = max(len(record.epochs) for record in group.full)
    return mean_by_seed(group, name, first=num // 3, last=num - num // 3)


ITEM = Item(
    label="fig:fc_mnist",
    claim="For a fully connected network on MNIST, gradient disparity distinguishes the levels of label noise from "
    "the start, and at the end it is larger the more noise there is.",
    stage=2,
    specs=full_runs(NOISE_FC_MNIST.values()),
    build=build,
    laptop="4,000 training samples instead of 60,000, 80 epochs at a learning rate of 0.1. The network is that of the "
    "paper.",
    at_paper_size="All of MNIST, one seed so far; 100 epochs, since the paper does not say how many it trains. With "
    "noisy labels disparity grows with the level in the first ten epochs; without noise it is higher than with 25 %. "
    "At the end it still grows with the level among noisy labels (8.4 to 15.3), which are not all fitted by then, but "
    "is highest without noise (19.0).",
    findings="In the first ten epochs disparity is largest with 75 and 100 % random labels, but higher without noise "
    "than with 25 %. At the end it is lowest without noise, and about the same at the other levels. In the middle of "
    "training it is highest without noise, which the paper shows too.",
    seconds=seconds_of,
)
