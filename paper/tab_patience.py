"""Table patience: the number of rises before stopping, from 1 to 25."""

from heldin.lab.tables import Table
from heldin.rules import NthRise
from paper.differences import best_difference
from paper.harness import MEAN_CURVE, PROTOCOLS, Item, Result, Runs, merge
from paper.settings import LIMITED_MNIST, NOISY_MNIST, all_runs, seconds_of
from paper.stops import METHOD_NAMES, PROTOCOL_TEXT, full_group, stop_numbers, stopping_methods

PATIENCES = (1, 5, 10, 15, 20, 25)
SETTINGS = (LIMITED_MNIST, NOISY_MNIST)


def build(runs: Runs) -> Result:
    """The accuracy at each patience, and the best accuracy of disparity minus the best one of cross-validation."""
    parts = []
    for setting in SETTINGS:
        group = full_group(runs, setting)
        if group is None:
            continue
        by_patience = {patience: stopping_methods(setting, runs.profile, NthRise(patience)) for patience in PATIENCES}
        methods = {name: {p: found[name] for p, found in by_patience.items()} for name in ("cv", "gd")}
        keyed = {f"{setting.key}.{name}.p{p}": each for name, found in methods.items() for p, each in found.items()}
        numbers = stop_numbers(group, keyed, ("accuracy",))
        both = {METHOD_NAMES[name]: [*methods[name].values()] for name in ("gd", "cv")}
        best = best_difference(group, f"{setting.key}.gd-cv.best", dict.fromkeys(PROTOCOLS, both))
        parts += [
            Result(tables={setting.key: _table(setting.title_for(group.setting), setting.key, numbers)}),
            numbers,
            best,
        ]
    return merge(*parts)


def _table(title: str, key: str, result: Result) -> Table:
    rows = [
        {
            "patience": patience,
            **{
                METHOD_NAMES[name]: result.numbers.get(f"{key}.{name}.p{patience}.accuracy", {}).get(MEAN_CURVE)
                for name in ("cv", "gd")
            },
        }
        for patience in PATIENCES
    ]
    return Table(tuple(rows[0]), tuple(rows), f"{title}: test accuracy, %, {PROTOCOL_TEXT[MEAN_CURVE]}")


ITEM = Item(
    label="tab:patience",
    claim="On MNIST, gradient disparity at its best patience is better than cross-validation at its best patience.",
    stage=1,
    specs=all_runs(SETTINGS),
    build=build,
    laptop="As tab:kfoldl and tab:kfoldn. Within 120 and 50 epochs the larger patiences may not fire; they are then "
    "read at the last epoch. The best patience is one that fires in every run.",
    at_paper_size="As tab:kfoldl and tab:kfoldn. A patience that does not fire is read at the last epoch. With "
    "AlexNet on 256 digits (five seeds) the claim is reproduced. The best patience is the largest, close to training "
    "to the end, which is still more accurate; there training on all the data is an advantage by itself. On noisy "
    "MNIST (one seed) the difference is ten test images.",
    seconds=seconds_of,
)
