"""Figure inner_prod: cosine similarity and label noise."""

from paper.correlations import correlations, mean_by_seed, trend
from paper.harness import Item, Result, Runs, merge
from paper.plots import SettingCurvesDisplay
from paper.settings import DISPARITY, NOISE_CIFAR10, NOISE_MNIST, full_runs, seconds_of
from paper.sweeps import complete_sweep, noise_title, sweep_groups, sweep_title

PANELS = {"a": NOISE_CIFAR10, "b": NOISE_MNIST}


def build(runs: Runs) -> Result:
    """Correlations of cosine and disparity over all levels and epochs, and whether each orders the levels."""
    figures, parts = {}, []
    for panel, sweep in PANELS.items():
        titled = {noise_title(level): group for level, group in sweep_groups(runs, sweep).items()}
        for name in ("test_error", DISPARITY, "cosine") if titled else ():
            figures[f"{panel}-{name}"] = SettingCurvesDisplay(titled, name, sweep_title(runs.profile, sweep))
        groups = list(complete_sweep(runs, sweep).values())
        records = [group.full for group in groups]
        numbers = {
            f"{panel}.rho.cos.accuracy": correlations(records, "cosine", "test_accuracy"),
            f"{panel}.rho.gd.error": correlations(records, DISPARITY, "test_error"),
            f"{panel}.rho.gd.gap": correlations(records, DISPARITY, "generalization_error"),
            f"{panel}.order.gd": trend([mean_by_seed(group, DISPARITY) for group in groups]),
            f"{panel}.order.cos": trend([mean_by_seed(group, "cosine") for group in groups]),
        }
        parts.append(Result.from_numbers(numbers))
    return merge(Result(figures=figures), *parts)


ITEM = Item(
    label="fig:inner_prod",
    claim="Gradient disparity distinguishes the levels of label noise better than the cosine similarity of gradients.",
    stage=2,
    specs=full_runs(setting for sweep in PANELS.values() for setting in sweep.values()),
    build=build,
    laptop="(a): ResNet-8 on 5,000 samples of CIFAR-10 instead of ResNet-18 on 12.8 k, 30 epochs. (b): 2,000 samples "
    "of MNIST instead of 12.8 k, width 1/4, 50 epochs.",
    findings="Disparity orders the levels of noise and correlates with the test error more than the cosine does with "
    "the accuracy. In (a) the cosine orders them too: it falls with the noise, where it grows in the paper. With "
    "noisy labels disparity falls over these 30 epochs while the generalization error grows, so their correlation is "
    "negative.",
    seconds=seconds_of,
)
