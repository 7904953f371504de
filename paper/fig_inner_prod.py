"""Figure inner_prod: cosine similarity and label noise."""

from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import averaged, correlations, trend
from paper.displays import LevelsDisplay
from paper.making import numbered, together
from paper.series import groups_of, whole
from paper.settings import DISPARITY, NOISE_CIFAR10, NOISE_MNIST, seconds_of

PANELS = {"a": NOISE_CIFAR10, "b": NOISE_MNIST}


def build(runs: Runs) -> Built:
    """Correlations of cosine and disparity over all levels and epochs, and whether each orders the levels."""
    figures, parts = {}, []
    for panel, series in PANELS.items():
        titled = {f"{level:.0%}": group for level, group in groups_of(runs, series).items()}
        for name in ("test_error", DISPARITY, "cosine") if titled else ():
            figures[f"{panel}-{name}"] = LevelsDisplay(titled, name)
        groups = list(whole(runs, series).values())
        listed = [group.full for group in groups]
        more = {
            f"{panel}.rho.cos.accuracy": correlations(listed, "cosine", "test_accuracy"),
            f"{panel}.rho.gd.error": correlations(listed, DISPARITY, "test_error"),
            f"{panel}.rho.gd.gap": correlations(listed, DISPARITY, "generalization_error"),
            f"{panel}.order.gd": trend([averaged(group, DISPARITY) for group in groups]),
            f"{panel}.order.cos": trend([averaged(group, "cosine") for group in groups]),
        }
        parts.append(numbered(more))
    return together(Built(figures=figures), *parts)


ITEM = Item(
    label="fig:inner_prod",
    claim="Gradient disparity tells the levels of label noise apart better than the cosine similarity of "
    "gradients does.",
    stage=2,
    specs=lambda profile: [
        s for series in PANELS.values() for setting in series.values() for s in setting.full(profile)
    ],
    build=build,
    differs="1,280 samples of CIFAR-10 and 2,000 of MNIST instead of 12.8 k, widths 1/16 and 1/4, 25 and 50 epochs.",
    seconds=seconds_of,
)
