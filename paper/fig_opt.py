"""Figure opt: other optimizers."""

from collections.abc import Iterator, Mapping

from heldin.lab.curves import Group, curve_of, value_at
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.tables import Table
from heldin.rules import NthRise
from paper.making import (
    PER_RUN,
    PROTOCOLS,
    SEEN,
    Row,
    answers,
    built_of,
    curves,
    group_of,
    in_some,
    rise_epochs,
    some,
    stop_epochs,
    together,
)
from paper.settings import DISPARITY, OPTIMIZERS, seconds_of

WAY = StoppingMethod(Kind.SIGNAL, DISPARITY, NthRise())
NAMES = {"test": "test loss", "gd": "disparity"}
LATE = 20  # the epoch from which on the paper sees the disparity of (h) fall


def build(runs: Runs) -> Built:
    """Where the 5th rise of disparity and of the test loss is, what the test error is there, and what changes later."""
    parts, shown = [], []
    for panel, setting in OPTIMIZERS.items():
        group = group_of(runs, setting)
        if group is None or not answers(group, WAY):
            continue
        found = built_of([*_rises(group, panel), *_late(group, panel)])
        parts += [curves(panel, group.full, DISPARITY, ("test_loss",)), found]
        shown.append({"setting": setting.title, **_cells(found, panel)})
    table = {"opt": Table(tuple(shown[0]), tuple(shown), "Epoch of the 5th rise")} if shown else {}
    return together(Built(tables=table), *parts)


def _rises(group: Group, panel: str) -> Iterator[Row]:
    """The epochs of the two 5th rises and the errors there, over the runs that have them; how far they are apart."""
    for protocol in PROTOCOLS:
        num = len(group.full) if protocol == PER_RUN else 1
        epochs = {
            "test": rise_epochs(group, "test_loss", NthRise(), protocol),
            "gd": stop_epochs(group, WAY, protocol),
        }
        told = {name: in_some(len(found), num, "rose five times") for name, found in epochs.items()}
        both = "; ".join(f"{NAMES[name]} {words}" for name, words in told.items() if words)
        errors = {name: _errors(group, found) for name, found in epochs.items()}
        for name, found in epochs.items():
            yield f"{panel}.{name}.epoch", protocol, some([float(epoch) for epoch in found.values()]), told[name]
            yield f"{panel}.{name}.error", protocol, some([*errors[name].values()]), told[name]
        seeds = [seed for seed in epochs["gd"] if seed in epochs["test"]]
        between = [float(abs(epochs["gd"][seed] - epochs["test"][seed])) for seed in seeds]
        yield f"{panel}.apart", protocol, some(between), both
        better = [error - errors["gd"][seed] for seed, error in errors["test"].items() if seed in errors["gd"]]
        yield f"{panel}.test-gd.error", protocol, some(better), both


def _errors(group: Group, epochs: Mapping[int | None, int]) -> dict[int, float]:
    """The test error at the epoch of each seed, or at the one of all seeds, in percent."""
    chosen = [(record, epochs.get(record.spec.seed, epochs.get(None))) for record in group.full]
    return {
        record.spec.seed: 100.0 * value_at(curve_of(record, "test_error"), epoch)
        for record, epoch in chosen
        if epoch is not None
    }


def _late(group: Group, panel: str) -> Iterator[Row]:
    """What changes from the 20th epoch to the last, in runs that go on for longer."""
    for name, curve in (("disparity", DISPARITY), ("loss", "test_loss")):
        curves = [curve_of(record, curve) for record in group.full if len(record.epochs) > LATE + 1]
        changes = [value_at(values, len(values) - 1) - value_at(values, LATE) for values in curves]
        yield (
            f"{panel}.late.{name}",
            ANY,
            some(changes),
            in_some(len(curves), len(group.full), f"lasted longer than {LATE} epochs"),
        )


def _cells(found: Built, panel: str) -> dict:
    return {
        f"{title}, {SEEN[protocol]}": found.numbers.get(f"{panel}.{name}.epoch", {}).get(protocol)
        for name, title in NAMES.items()
        for protocol in PROTOCOLS
    }


ITEM = Item(
    label="fig:opt",
    claim="With SGD with momentum, Adagrad, Adadelta, RmsProp and Adam, too, gradient disparity rises for the 5th time "
    "about when the test loss does.",
    stage=3,
    specs=lambda profile: [spec for setting in OPTIMIZERS.values() for spec in setting.full(profile)],
    build=build,
    differs="1,280 samples instead of 12.8 k, width 1/8, 25 epochs; torch's own learning rates, for the paper "
    "gives none.",
    found="Both come earlier than in the paper, as a tenth of the samples is fitted sooner; how near they are to "
    "each other is what is claimed, and that mostly holds. In (c), where the paper has 21 epochs between "
    "them, these networks hardly learn at all.",
    seconds=seconds_of,
)
