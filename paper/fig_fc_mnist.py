"""Figure fc_mnist: label noise on MNIST, four fully connected layers."""

from heldin.lab.curves import curve_of, mean
from heldin.lab.reproducing import Built, Item, Runs
from paper.making import trend
from paper.series import EARLY, levels, together, whole
from paper.settings import NOISE_FC_MNIST, seconds_of


def build(runs: Runs) -> Built:
    """What all levels of label noise share, and whether the generalization loss tells them apart at the beginning."""
    gaps = [
        (level, {r.spec.seed: mean(curve_of(r, "generalization_loss")[:EARLY]) for r in group.full})
        for level, group in whole(runs, NOISE_FC_MNIST).items()
    ]
    order = {"fc_mnist.order.gap_loss": trend(gaps)} if gaps else {}
    return together(levels(runs, "fc_mnist", NOISE_FC_MNIST), Built(numbers=order))


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
