"""Table robustness: twenty stopping thresholds, limited data."""

import statistics
from collections.abc import Sequence

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import Built, Item, Runs
from paper.making import MEAN_CURVE, PER_RUN, PRINTED, Numbers
from paper.series import together
from paper.settings import LIMITED, LIMITED_CIFAR100, Setting, seconds_of
from paper.thresholds import METRICS, NUM, over_twenty, twenty


def build(runs: Runs, settings: Sequence[Setting], *, each: Sequence[str] = ()) -> Built:
    """Best, mean, std and worst over the thresholds, and the epochs they stop at."""
    built = over_twenty(runs, settings, each=each)
    numbers: Numbers = {}
    for setting in settings:
        for name in ("gd", "cv"):
            if f"{setting.key}.{name}.mean.loss" in built.numbers:
                for protocol in (PER_RUN, MEAN_CURVE):
                    for key, found in _ends(runs, setting, name, protocol).items():
                        numbers.setdefault(f"{setting.key}.{name}.{key}", {})[protocol] = found
    return together(built, Built(numbers=numbers))


def _ends(runs: Runs, setting: Setting, name: str, protocol: str) -> dict[str, Estimate]:
    """The worst of each metric; the epochs of the thresholds that fire, and of the best one by accuracy."""
    outcomes = twenty(runs, setting, name, protocol)
    found = {}
    for metric in METRICS:
        recorded, printed = PRINTED[metric]
        if recorded in outcomes[0].metrics:
            values = [printed(outcome.metrics[recorded].mean) for outcome in outcomes]
            found[f"worst.{metric}"] = Estimate(max(values) if metric == "loss" else min(values), None, NUM)
    epochs = [outcome.epoch.mean for outcome in outcomes if outcome.num_fired == len(outcome.choices)]
    for what, of in (("std", statistics.pstdev), ("first", min), ("last", max)):
        found |= {f"{what}.epoch": Estimate(of(epochs), None, len(epochs))} if epochs else {}
    best = min(outcomes, key=lambda outcome: outcome.metrics["test_error"].mean)
    return found | {"best.epoch": Estimate(best.epoch.mean, None, NUM)}


ITEM = Item(
    label="tab:robustness",
    claim="With limited data, over twenty stopping thresholds the mean accuracy is higher with gradient disparity than "
    "with cross-validation, and varies less, but for MNIST.",
    stage=1,
    specs=lambda profile: [spec for setting in LIMITED for spec in setting.specs(profile)],
    build=lambda runs: build(runs, LIMITED, each=(LIMITED_CIFAR100.key,)),
    differs="As tab:kfoldl. A threshold that never fires counts with the last epoch, which is sooner here.",
    seconds=seconds_of,
)
