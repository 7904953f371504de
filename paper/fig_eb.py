"""Figure eb: signals with noisy and with clean labels."""

from paper.correlations import difference_by_seed, last_by_seed, mean_by_seed
from paper.harness import Item, Result, Runs, merge
from paper.plots import SettingCurvesDisplay
from paper.settings import NOISE_CIFAR10, full_runs, seconds_of
from paper.stops import full_group
from paper.sweeps import noise_title, sweep_title

SETTINGS = {noise_title(level): NOISE_CIFAR10[level] for level in (0.0, 0.5)}
SIGNALS = {"gd": "gradient_disparity", "eb": "evidence_based", "sign": "sign"}


def build(runs: Runs) -> Result:
    """The curves, and by how much each signal is larger with noisy labels, over all epochs and at the last one."""
    groups = {title: group for title, setting in SETTINGS.items() if (group := full_group(runs, setting))}
    curves = ("test_loss", *SIGNALS.values())
    title = sweep_title(runs.profile, NOISE_CIFAR10)
    figures = {name: SettingCurvesDisplay(groups, name, title) for name in curves} if groups else {}
    numbers = {}
    if len(groups) == len(SETTINGS):
        for name, signal in SIGNALS.items():
            for key, read in ((name, mean_by_seed), (f"{name}.end", last_by_seed)):
                clean, noisy = (read(groups[title], signal) for title in SETTINGS)
                numbers[f"{key}.noisy-clean"] = difference_by_seed(noisy, clean)
    return merge(Result(figures=figures), Result.from_numbers(numbers))


ITEM = Item(
    label="fig:eb",
    claim="Gradient disparity distinguishes noisy from clean labels. The sign of inner products and the EB-criterion "
    "rank the noisy setting as the better one.",
    stage=2,
    specs=full_runs(SETTINGS.values()),
    build=build,
    laptop="As fig:inner_prod (a).",
    findings="The EB-criterion does not distinguish noisy from clean labels, as in the paper. The sign of inner "
    "products does: it is smaller with noisy labels, so that it ranks the noisy setting as the worse one.",
    seconds=seconds_of,
)
