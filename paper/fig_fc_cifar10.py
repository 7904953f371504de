"""Figure fc_cifar10: label noise on CIFAR-10, four fully connected layers."""

from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import across, at_end
from paper.making import numbered, together
from paper.series import levels, whole
from paper.settings import DISPARITY, NOISE_FC_CIFAR10, seconds_of


def build(runs: Runs) -> Built:
    """What all levels of label noise share, and whether disparity goes with the generalization gap at the end."""
    found = whole(runs, NOISE_FC_CIFAR10).values()
    gaps = {
        f"fc_cifar10.end.rho.{name}": across([(at_end(group, DISPARITY), at_end(group, name)) for group in found])
        for name in ("generalization_loss", "generalization_error")
    }
    parts = levels(runs, "fc_cifar10", NOISE_FC_CIFAR10, metrics=("test_error",))
    return together(parts, numbered(gaps))


ITEM = Item(
    label="fig:fc_cifar10",
    claim="For a fully connected network on CIFAR-10, gradient disparity ranks the levels of label noise as the "
    "generalization gap does.",
    stage=2,
    specs=lambda profile: [spec for setting in NOISE_FC_CIFAR10.values() for spec in setting.full(profile)],
    build=build,
    differs="2,560 samples instead of 50,000, 60 epochs at a rate of 0.1; the network is the paper's.",
    found="Disparity orders the levels of noise; the generalization gap of these runs does not grow with them, so "
    "that the two do not rank them alike.",
    seconds=seconds_of,
)
