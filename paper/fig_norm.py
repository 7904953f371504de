"""Figure norm: re-scaling against normalising the loss."""

from heldin.lab.figures import CurvesDisplay
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.ways import Kind, Way
from heldin.rules import NthRise
from paper.making import correlations, difference, group_of, stop_numbers
from paper.settings import RESCALED, RESCALINGS, seconds_of

NAMES = dict(zip(("rescaled", "normalized", "gradient"), RESCALINGS, strict=True))


def build(runs: Runs) -> Built:
    """The disparity under each re-scaling, and its correlation with the test loss."""
    group = group_of(runs, RESCALED)
    if group is None or not group.full:
        return Built()
    figures = {name: CurvesDisplay(group.full, signal, ("test_loss",)) for name, signal in NAMES.items()}
    numbers = {f"rho.{name}": correlations([group], signal, "test_loss") for name, signal in NAMES.items()}
    stop, end = Way(Kind.SIGNAL, RESCALINGS[0], NthRise()), Way(Kind.NEVER)
    numbers |= {
        "gd.epoch": stop_numbers(group, "x", {"gd": stop}, ())["x.gd.epoch"],
        "drop": difference(group, end, stop, "loss"),
    }
    return Built(figures=figures, numbers={key: value for key, value in numbers.items() if value})


ITEM = Item(
    label="fig:norm",
    claim="Re-scaling losses by their deviation makes the disparity correlate with the test loss more than mapping "
    "them to 0..1, or than re-scaling gradients.",
    stage=3,
    specs=lambda profile: RESCALED.full(profile),
    build=build,
    differs="1,280 samples instead of 12.8 k, width 1/8, 25 epochs.",
    seconds=seconds_of,
)
