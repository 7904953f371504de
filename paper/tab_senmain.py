"""Table senmain: the sensitivity to the stopping threshold."""

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.sensitivity import sensitivity, spread
from heldin.lab.tables import Table
from paper.making import MEAN_CURVE, PER_RUN, answers, group_of, stops
from paper.settings import SEVEN, seconds_of
from paper.thresholds import twenty


def build(runs: Runs) -> Built:
    """The sum over the seven settings of std over mean; nothing while one of them is missing."""
    found = [(setting, group_of(runs, setting)) for setting in SEVEN]
    ways = [stops(setting, runs.profile) for setting, _ in found]
    if any(group is None or not answers(group, way["cv_plus"]) for (_, group), way in zip(found, ways, strict=True)):
        return Built()
    numbers: dict = {}
    rows = []
    for name in ("gd", "cv"):
        for protocol in (PER_RUN, MEAN_CURVE):
            row: dict = {"way": name, "protocol": protocol}
            for metric in ("accuracy", "loss"):
                spreads = [spread(twenty(runs, setting, name, protocol), f"test_{metric}") for setting, _ in found]
                value = sensitivity(spreads)
                numbers.setdefault(f"{name}.{metric}", {})[protocol] = Estimate(value, None, len(found))
                row[f"sensitivity of {metric}"] = value
            rows.append(row)
    for metric in ("accuracy", "loss"):
        numbers[f"cv-gd.{metric}"] = {
            protocol: Estimate(numbers[f"cv.{metric}"][protocol].mean - numbers[f"gd.{metric}"][protocol].mean, None, 7)
            for protocol in (PER_RUN, MEAN_CURVE)
        }
    table = Table(tuple(rows[0]), tuple(rows), "Sensitivity to the threshold, over seven settings")
    return Built(tables={"sensitivity": table}, numbers=numbers)


ITEM = Item(
    label="tab:senmain",
    claim="Gradient disparity is less sensitive to the stopping threshold than cross-validation.",
    stage=1,
    specs=lambda profile: [spec for setting in SEVEN for spec in setting.specs(profile)],
    build=build,
    differs="As tab:kfoldl and tab:kfoldn.",
    seconds=seconds_of,
)
