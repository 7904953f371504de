"""Table robustness: twenty stopping thresholds, limited data."""

from collections.abc import Iterator, Sequence

from heldin.lab.reproducing import Built, Item, Runs
from paper.differing import best_difference
from paper.kfold import NAMES
from paper.making import PROTOCOLS, Row, built_of, group_of, silence, together
from paper.settings import LIMITED, LIMITED_CIFAR100, Setting, seconds_of
from paper.thresholds import outcomes, over_twenty, twenty


def build(runs: Runs, settings: Sequence[Setting], *, each: Sequence[str] = ()) -> Built:
    """Best, mean, std and worst over the thresholds, the epochs they stop at, and who is ahead at its best one."""
    parts = [over_twenty(runs, settings, each=each)]
    for setting in settings:
        group, ways = group_of(runs, setting), {NAMES[name]: twenty(runs, setting, name) for name in ("gd", "cv")}
        parts += [built_of(_best_epoch(runs, setting, name)) for name in ("gd", "cv")]
        if group is not None and all(ways.values()):
            parts.append(best_difference(group, f"{setting.key}.gd-cv.best", ways, "accuracy"))
    return together(*parts)


def _best_epoch(runs: Runs, setting: Setting, name: str) -> Iterator[Row]:
    """The epoch of the threshold that is best by accuracy."""
    group = group_of(runs, setting)
    for protocol in PROTOCOLS:
        found = outcomes(runs, setting, name, protocol)
        if group is not None and found:
            best = min(found, key=lambda outcome: outcome.metrics["test_error"].mean)
            yield f"{setting.key}.{name}.best.epoch", protocol, best.epoch, silence(group, best.method, protocol)


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
