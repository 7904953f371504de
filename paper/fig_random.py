"""Figure random: label noise on MNIST, AlexNet."""

from paper.correlations import mean_by_seed, values_by_seed
from paper.harness import NO_PROTOCOL, Item, Result, Runs, merge
from paper.settings import NOISE_MNIST, full_runs, seconds_of
from paper.stops import estimate_or_none
from paper.sweeps import complete_sweep, noise_sweep


def build(runs: Runs) -> Result:
    """The sweep over label noise, and how far the generalization error is from zero at the worst level."""
    gaps = [mean_by_seed(group, "generalization_error") for group in complete_sweep(runs, NOISE_MNIST).values()]
    furthest = estimate_or_none([100.0 * max(map(abs, each)) for each in values_by_seed(gaps).values()])
    return merge(
        noise_sweep(runs, "mnist", NOISE_MNIST, metrics=("test_error", "test_loss")),
        Result.from_numbers({"mnist.gap.error": {NO_PROTOCOL: furthest}}),
    )


ITEM = Item(
    label="fig:random",
    claim="On MNIST gradient disparity orders the levels of label noise from the first epochs on, where the "
    "generalization gap does not, and correlates with the test error over all of them.",
    stage=2,
    specs=full_runs(NOISE_MNIST.values()),
    build=build,
    laptop="2,000 samples instead of 12.8 k, width 1/4, batches of 32, 50 epochs.",
    findings="Disparity orders the levels of noise from the first epochs on; at the end clean labels and 25 % no "
    "longer differ. It correlates with the test error, less than in the paper. The generalization error does not "
    "account for the levels in the first ten epochs either, but it does not stay near zero: on average over all "
    "epochs it is 18 % at the level where it is furthest.",
    seconds=seconds_of,
)
