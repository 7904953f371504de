"""Table senmain: the sensitivity to the stopping threshold."""

from collections.abc import Mapping, Sequence

from heldin.lab.compare import Spread, sensitivity
from heldin.lab.curves import Estimate
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.tables import Cell, Table
from paper.correlating import exceeding
from paper.kfold import NAMES
from paper.making import MEAN_CURVE, PER_RUN, PROTOCOLS, SEEN, built_of, mean_of, single, some, together
from paper.settings import SEVEN, seconds_of
from paper.thresholds import outcomes, read_by_seed, silent

METRICS = ("accuracy", "loss")
WAYS = ("gd", "cv")


def build(runs: Runs) -> Built:
    """The sum over the seven settings of std over mean; nothing while one of them is missing.

    Each run by its own curve: the sensitivity of each seed, and their mean. By the mean curve: that of the means over
    the seeds, as the paper has it, which is a single number.
    """
    if not all(read_by_seed(runs, setting, name, PER_RUN, "loss") for setting in SEVEN for name in WAYS):
        return Built()
    rows: list[dict[str, Cell]] = []
    parts = []
    for protocol in PROTOCOLS:
        found = {(name, metric): _of(runs, name, metric, protocol) for name in WAYS for metric in METRICS}
        told = {name: _silent(runs, name, protocol) for name in WAYS}
        both = "; ".join(f"{NAMES[name]}: {words}" for name, words in told.items() if words)
        for name in WAYS:
            numbers = {metric: _estimate(found[name, metric], protocol) for metric in METRICS}
            parts.append(built_of((f"{name}.{metric}", protocol, n, told[name]) for metric, n in numbers.items()))
            cells = {f"sensitivity of {metric}": number for metric, number in numbers.items()}
            rows.append({"way": NAMES[name], "protocol": SEEN[protocol], **cells})
        for metric in METRICS:
            less = exceeding(found["cv", metric], found["gd", metric]).get(ANY)
            parts.append(built_of([(f"cv-gd.{metric}", protocol, less, both)]))
    table = Table(tuple(rows[0]), tuple(rows), "Sensitivity to the threshold, over seven settings")
    return together(Built(tables={"sensitivity": table}), *parts)


def _of(runs: Runs, name: str, metric: str, protocol: str) -> dict[int, float]:
    """The sensitivity of each seed that all settings have; of the means over the seeds, under 0, by the mean curve."""
    values = [read_by_seed(runs, setting, name, protocol, metric) for setting in SEVEN]
    if protocol == MEAN_CURVE:
        return {0: _sensitivity([[mean_of([*each.values()]) for each in setting] for setting in values])}
    seeds = set.intersection(*({*each} for setting in values for each in setting))
    return {seed: _sensitivity([[each[seed] for each in setting] for setting in values]) for seed in sorted(seeds)}


def _sensitivity(settings: Sequence[Sequence[float]]) -> float:
    return sensitivity(Spread("test_loss", tuple(values), 0) for values in settings)


def _estimate(values: Mapping[int, float], protocol: str) -> Estimate | None:
    return single(values[0]) if protocol == MEAN_CURVE else some([*values.values()])


def _silent(runs: Runs, name: str, protocol: str) -> str:
    return silent([each for setting in SEVEN for each in outcomes(runs, setting, name, protocol)])


ITEM = Item(
    label="tab:senmain",
    claim="Gradient disparity is less sensitive to the stopping threshold than cross-validation.",
    stage=1,
    specs=lambda profile: [spec for setting in SEVEN for spec in setting.specs(profile)],
    build=build,
    differs="As tab:kfoldl and tab:kfoldn.",
    found="With disparity the high thresholds often never fire in these short runs, and what they then give, the "
    "last epoch, lies far from what the low ones give; so accuracy and loss vary more over the thresholds "
    "than with k-fold.",
    seconds=seconds_of,
)
