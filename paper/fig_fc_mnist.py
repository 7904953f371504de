"""Figure fc_mnist: label noise on MNIST, four fully connected layers."""

from heldin.lab.curves import Estimate, Group
from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import averaged, exceeding, shared, trend
from paper.making import numbered, together
from paper.series import early, levels, whole
from paper.settings import DISPARITY, NOISE_FC_MNIST, seconds_of

BETWEEN = (0.25, 0.5, 0.75)
"""Levels whose generalization loss is lower than without noise, in the middle of training."""


def build(runs: Runs) -> Built:
    """What all levels of label noise share, and what the generalization loss says of them, early and in the middle."""
    found = whole(runs, NOISE_FC_MNIST)
    numbers = {"fc_mnist.order.gap_loss": trend([early(group, "generalization_loss") for group in found.values()])}
    if found:
        numbers["fc_mnist.middle.gap_loss"] = _above(found, "generalization_loss")
        numbers["fc_mnist.middle.disparity"] = _above(found, DISPARITY)
    return together(levels(runs, "fc_mnist", NOISE_FC_MNIST), numbered(numbers))


def _above(found: dict[float, Group], name: str) -> dict[str, Estimate]:
    """By how much a curve is higher without noise than at the highest level between, seed by seed."""
    clean, *noisy = (_middle(found[level], name) for level in (0.0, *BETWEEN))
    return exceeding(clean, {seed: max(each) for seed, each in shared(noisy).items()})


def _middle(group: Group, name: str) -> dict[int, float]:
    """The mean of a curve over the middle third of the epochs."""
    num = max(len(record.epochs) for record in group.full)
    return averaged(group, name, first=num // 3, last=num - num // 3)


ITEM = Item(
    label="fig:fc_mnist",
    claim="For a fully connected network on MNIST, gradient disparity tells the levels of label noise apart from the "
    "beginning, and at the end it is the larger the more noise there is.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_FC_MNIST.values() for spec in setting.full(profile)],
    build=build,
    differs="4,000 training samples instead of 60,000, 80 epochs at a rate of 0.1; the network is the paper's.",
    seconds=seconds_of,
)
