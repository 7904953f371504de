"""Table patience: the number of rises before stopping, from 1 to 25."""

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.tables import Table
from heldin.rules import NthRise
from paper.making import MEAN_CURVE, PER_RUN, Numbers, group_of, stop_numbers, stops
from paper.settings import LIMITED_MNIST, NOISY_MNIST, seconds_of

PATIENCES = (1, 5, 10, 15, 20, 25)
SETTINGS = (LIMITED_MNIST, NOISY_MNIST)


def build(runs: Runs) -> Built:
    """The accuracy at each patience, and by how much the best of disparity is above the best of cross-validation."""
    tables, numbers = {}, {}
    for setting in SETTINGS:
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        rows = []
        for patience in PATIENCES:
            ways = stops(setting, runs.profile, NthRise(patience))
            ways.pop("cv_plus", None)
            named = {f"{name}.p{patience}": way for name, way in ways.items()}
            found = stop_numbers(group, setting.key, named, ("accuracy",))
            numbers.update(found)
            row = {
                name: found.get(f"{setting.key}.{name}.p{patience}.accuracy", {}).get(MEAN_CURVE)
                for name in ("cv", "gd")
            }
            rows.append({"patience": patience, **row})
        numbers.update(_best(setting.key, numbers))
        tables[setting.key] = Table(("patience", "cv", "gd"), tuple(rows), f"{setting.title}: test accuracy, %")
    return Built(tables=tables, numbers=numbers)


def _best(key: str, numbers: Numbers) -> Numbers:
    """By how much the best accuracy with disparity is above the best one with cross-validation."""
    best = {}
    for way in ("gd", "cv"):
        found = [numbers.get(f"{key}.{way}.p{patience}.accuracy", {}) for patience in PATIENCES]
        for protocol in (PER_RUN, MEAN_CURVE):
            if all(protocol in each for each in found):
                best[way, protocol] = max(each[protocol].mean for each in found)
    ahead = {
        protocol: Estimate(best["gd", protocol] - best["cv", protocol], None, len(PATIENCES))
        for protocol in (PER_RUN, MEAN_CURVE)
        if ("gd", protocol) in best and ("cv", protocol) in best
    }
    return {f"{key}.gd-cv.best": ahead} if ahead else {}


ITEM = Item(
    label="tab:patience",
    claim="Even at its best patience cross-validation is behind gradient disparity at its best patience, on MNIST.",
    stage=1,
    specs=lambda profile: [spec for setting in SETTINGS for spec in setting.specs(profile)],
    build=build,
    differs="As tab:kfoldl and tab:kfoldn. With a horizon of 120 and of 50 epochs the larger patiences may not fire; "
    "the last epoch counts then.",
    seconds=seconds_of,
)
