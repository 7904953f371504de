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
        *(
            curve_figure(name, group.full, each, ("test_loss",), title=RESCALED.title_for(group.setting))
            for name, each in NAMES.items()
        ),
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
    laptop="VGG-8 of width 1/4 instead of VGG-11, 1,280 samples instead of 12.8 k, batches of 32, 40 epochs.",
    findings="All three correlate with the test loss, less than in the paper. Dividing losses by their deviation and "
    "mapping them to 0..1 differ little; with re-scaled gradients the correlation is lower.",
    seconds=seconds_of,
)
