"""Figure kfoldl: the curves of the limited settings."""

from collections.abc import Sequence

from heldin.lab.curves import Estimate, estimate
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import ConsecutiveRises, NthRise
from paper.kfold import drawn
from paper.making import MEAN_CURVE, PER_RUN, Numbers, answers, group_of, outcome, stops
from paper.series import together
from paper.settings import LIMITED, Setting, seconds_of


def bars(runs: Runs, settings: Sequence[Setting]) -> Built:
    """How many epochs lie between the stops of the two rules, the two bars, with disparity and with cross-validation.

    Where a rule never fires the last epoch counts.
    """
    numbers: Numbers = {}
    for setting in settings:
        group = group_of(runs, setting)
        if group is None:
            continue
        both = [stops(setting, runs.profile, rule) for rule in (NthRise(), ConsecutiveRises())]
        for protocol in (PER_RUN, MEAN_CURVE):
            found = {}
            for name in ("gd", "cv"):
                if answers(group, both[0][name]):
                    one, other = (outcome(group, ways[name], protocol).choices for ways in both)
                    found[name] = estimate([float(b.epoch - a.epoch) for a, b in zip(one, other, strict=True)])
            if len(found) == 2:
                found["cv-gd"] = Estimate(found["cv"].mean - found["gd"].mean, None, found["gd"].num)
            for name, value in found.items():
                numbers.setdefault(f"{setting.key}.bars.{name}", {})[protocol] = value
    return Built(numbers=numbers)


ITEM = Item(
    label="fig:kfoldl",
    claim="With limited data both the validation loss and gradient disparity follow the test loss, and the network "
    "trained on all the data ends up better.",
    stage=1,
    specs=lambda profile: [spec for setting in LIMITED for spec in setting.specs(profile)],
    build=lambda runs: together(drawn(runs, LIMITED), bars(runs, LIMITED)),
    differs="As tab:kfoldl.",
    seconds=seconds_of,
)
