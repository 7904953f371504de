"""Figure kfoldl: the curves of the limited settings."""

from collections.abc import Iterator, Sequence

from heldin.lab.curves import Group
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import ConsecutiveRises, NthRise
from paper.differing import epochs_apart, gaps_between
from paper.kfold import NAMES, drawn
from paper.making import PROTOCOLS, Row, answers, built_of, group_of, silences, some, stops, together
from paper.settings import LIMITED, Setting, seconds_of


def bars(runs: Runs, settings: Sequence[Setting]) -> Built:
    """How many epochs lie between the stops of the two rules, the two bars, with disparity and with cross-validation.

    A run counts where both rules fire in it.
    """
    parts = []
    for setting in settings:
        group = group_of(runs, setting)
        if group is None:
            continue
        rules = {
            "t2": stops(setting, runs.profile, ConsecutiveRises()),
            "t1": stops(setting, runs.profile, NthRise()),
        }
        of = {name: {rule: ways[name] for rule, ways in rules.items()} for name in ("cv", "gd")}
        parts += [epochs_apart(group, f"{setting.key}.bars.{name}", both, verb="fired") for name, both in of.items()]
        parts.append(built_of(_compared(group, f"{setting.key}.bars.cv-gd", of)))
    return together(*parts)


def _compared(group: Group, key: str, of: dict) -> Iterator[Row]:
    """How many epochs more lie between the bars of cross-validation than between those of disparity."""
    ways = {f"{rule} of {NAMES[name]}": way for name, both in of.items() for rule, way in both.items()}
    if not answers(group, *ways.values()):
        return
    for protocol in PROTOCOLS:
        cv, gd = (gaps_between(group, [*of[name].values()], protocol) for name in ("cv", "gd"))
        more = [float(gap - gd[seed]) for seed, gap in cv.items() if seed in gd]
        yield key, protocol, some(more), silences(group, ways, protocol, "fired")


ITEM = Item(
    label="fig:kfoldl",
    claim="With limited data both the validation loss and gradient disparity follow the test loss, and the network "
    "trained on all the data ends up better.",
    stage=1,
    specs=lambda profile: [spec for setting in LIMITED for spec in setting.specs(profile)],
    build=lambda runs: together(drawn(runs, LIMITED), bars(runs, LIMITED)),
    differs="As tab:kfoldl.",
    found="The validation loss follows the test loss everywhere, disparity on MNIST; on CIFAR-100 it falls while "
    "the test loss rises, for the reason given with tab:var. Five rises in a row hardly ever happen in these "
    "short runs, so the distance between the two bars is mostly unknown.",
    seconds=seconds_of,
)
