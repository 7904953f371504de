"""Figure eb: which signals tell noisy labels from clean ones."""

from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import at_end, averaged, exceeding
from paper.displays import LevelsDisplay
from paper.making import group_of, numbered, together
from paper.settings import RIVALS_CIFAR10, RIVALS_CIFAR10_NOISY, seconds_of

SETTINGS = {"0%": RIVALS_CIFAR10, "50%": RIVALS_CIFAR10_NOISY}
SIGNALS = {"gd": "gradient_disparity", "eb": "evidence_based", "sign": "sign"}


def build(runs: Runs) -> Built:
    """The curves, and by how much each signal is larger with noisy labels, over all epochs."""
    groups = {title: group for title, setting in SETTINGS.items() if (group := group_of(runs, setting)) and group.full}
    figures = {name: LevelsDisplay(groups, name) for name in ("test_loss", *SIGNALS.values())} if groups else {}
    numbers = {}
    if len(groups) == len(SETTINGS):
        for name, signal in SIGNALS.items():
            for what, of in ((name, averaged), (f"{name}.end", at_end)):
                clean, noisy = (of(groups[title], signal) for title in SETTINGS)
                numbers[f"{what}.noisy-clean"] = exceeding(noisy, clean)
    return together(Built(figures=figures), numbered(numbers))


ITEM = Item(
    label="fig:eb",
    claim="Gradient disparity tells noisy from clean labels; the sign of inner products and the EB-criterion take the "
    "noisy setting for the better one.",
    stage=1,
    specs=lambda profile: [spec for setting in SETTINGS.values() for spec in setting.full(profile)],
    build=build,
    differs="As tab:RW.",
    found="The EB-criterion and the sign of inner products vary as much between seeds as between clean and noisy "
    "labels: neither takes the noisy setting for the better one, and neither tells them apart.",
    seconds=seconds_of,
)
