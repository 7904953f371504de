"""Table norm: how much the parameters grow."""

from heldin.lab.curves import estimate
from heldin.lab.models.building import build as build_model
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.selection import Protocol, select
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table
from heldin.probing.randomness import own_randomness, seed_for
from paper.making import group_of, stops
from paper.series import shape_of
from paper.settings import RIVALS_MNIST, RIVALS_MNIST_NOISY, VGG16, VGG16_NOISY, seconds_of

SETTINGS = {"1": RIVALS_MNIST, "2": RIVALS_MNIST_NOISY, "3": VGG16, "4": VGG16_NOISY}


def initial_norm(spec: RunSpec) -> float:
    """The norm of the initial weights, which a record does not hold; they follow from the spec."""
    shape, classes = shape_of(spec)
    with own_randomness(seed_for(spec.seed, "initial weights")):
        model = build_model(spec.model, shape, classes, scale=spec.scale, init=spec.init)
    norm = sum(float(p.detach().double().square().sum()) for p in model.parameters()) ** 0.5
    return round(norm, 6)  # the last digits depend on how many threads add up


def build(runs: Runs) -> Built:
    """The norm where disparity says stop and at the end, over that of the initial weights."""
    rows, numbers = [], {}
    for number, setting in SETTINGS.items():
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        stop = {
            choice.runs[0]: choice.epoch for choice in select(group, stops(setting, "")["gd"], Protocol.PER_RUN).choices
        }
        start = {record.id: initial_norm(record.spec) for record in group.full}
        at_stop = [record.epochs[stop[record.id]]["parameter_norm"] / start[record.id] for record in group.full]
        at_end = [record.epochs[-1]["parameter_norm"] / start[record.id] for record in group.full]
        numbers[f"{number}.gd"] = {ANY: estimate(at_stop)}
        numbers[f"{number}.end"] = {ANY: estimate(at_end)}
        rows.append({"setting": setting.title, "at the stop": estimate(at_stop), "at the end": estimate(at_end)})
    table = Table(("setting", "at the stop", "at the end"), tuple(rows), "Norm of the parameters over the initial one")
    return Built(tables={"norm": table} if rows else {}, numbers=numbers)


ITEM = Item(
    label="tab:norm",
    claim="The norm of the parameters hardly grows until gradient disparity says stop, so it cannot be what moves it.",
    stage=3,
    specs=lambda profile: [spec for setting in SETTINGS.values() for spec in setting.full(profile)],
    build=build,
    differs="As tab:RW and tab:var; the end is the 50th (MNIST) or 25th (CIFAR-10) epoch, not the 200th.",
    seconds=seconds_of,
)
