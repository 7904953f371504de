"""Figure norm: re-scaling against normalizing the loss."""

from heldin.lab.methods import Kind, StoppingMethod
from heldin.rules import NthRise
from paper.correlations import correlations
from paper.differences import loss_after_stop
from paper.harness import Item, Result, Runs, merge
from paper.settings import RESCALED, RESCALINGS, full_runs, seconds_of
from paper.stops import curve_figure, full_group

NAMES = dict(zip(("rescaled", "normalized", "gradient"), RESCALINGS, strict=True))


def build(runs: Runs) -> Result:
    """The disparity under each re-scaling, and its correlation with the test loss."""
    group = full_group(runs, RESCALED)
    if group is None:
        return Result()
    numbers = {f"rho.{name}": correlations([group.full], signal, "test_loss") for name, signal in NAMES.items()}
    return merge(
        *(curve_figure(name, group.full, signal, ("test_loss",)) for name, signal in NAMES.items()),
        Result.from_numbers(numbers),
        loss_after_stop(group, StoppingMethod(Kind.SIGNAL, RESCALINGS[0], NthRise())),
    )


ITEM = Item(
    label="fig:norm",
    claim="Disparity correlates with the test loss more if losses are divided by their deviation than if they are "
    "mapped to 0..1, or if gradients are re-scaled.",
    stage=3,
    specs=full_runs([RESCALED]),
    build=build,
    laptop="1,280 samples instead of 12.8 k, width 1/8, 25 epochs.",
    findings="Before a network has learned anything, all its losses are nearly equal, so gradients are divided by a "
    "small deviation and disparity starts high. It falls while losses spread, for most of these short runs, "
    "when the test loss already rises. None of the three correlates with the test loss, and they differ "
    "little.",
    seconds=seconds_of,
)
