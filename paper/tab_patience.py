"""Table patience: the number of rises before stopping, from 1 to 25."""

from heldin.lab.curves import Group
from heldin.lab.methods import StoppingMethod
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.tables import Table
from heldin.rules import NthRise
from paper.differing import best_difference
from paper.kfold import NAMES
from paper.making import MEAN_CURVE, SEEN, group_of, stop_numbers, stops, together
from paper.settings import LIMITED_MNIST, NOISY_MNIST, Setting, seconds_of

PATIENCES = (1, 5, 10, 15, 20, 25)
SETTINGS = (LIMITED_MNIST, NOISY_MNIST)


def build(runs: Runs) -> Built:
    """The accuracy at each patience, and by how much the best of disparity is above the best of cross-validation."""
    parts = []
    for setting in SETTINGS:
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        by_patience = {patience: stops(setting, runs.profile, NthRise(patience)) for patience in PATIENCES}
        ways = {name: {p: found[name] for p, found in by_patience.items()} for name in ("cv", "gd")}
        found = _numbers(group, setting.key, ways)
        both = {NAMES[name]: [*ways[name].values()] for name in ("gd", "cv")}
        best = best_difference(group, f"{setting.key}.gd-cv.best", both, "accuracy")
        parts += [Built(tables={setting.key: _table(setting, found)}), found, best]
    return together(*parts)


def _numbers(group: Group, key: str, ways: dict[str, dict[int, StoppingMethod]]) -> Built:
    keyed = {f"{key}.{name}.p{p}": way for name, found in ways.items() for p, way in found.items()}
    return stop_numbers(group, keyed, ("accuracy",))


def _table(setting: Setting, found: Built) -> Table:
    rows = [
        {
            "patience": patience,
            **{
                NAMES[name]: found.numbers.get(f"{setting.key}.{name}.p{patience}.accuracy", {}).get(MEAN_CURVE)
                for name in ("cv", "gd")
            },
        }
        for patience in PATIENCES
    ]
    return Table(tuple(rows[0]), tuple(rows), f"{setting.title}: test accuracy, %, {SEEN[MEAN_CURVE]}")


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
