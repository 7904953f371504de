"""Figure fc_cifar10: label noise on CIFAR-10, four fully connected layers."""

from paper.correlations import correlation_across
from paper.harness import Item, Result, Runs, merge
from paper.settings import DISPARITY, NOISE_FC_CIFAR10, full_runs, seconds_of
from paper.sweeps import complete_sweep, late_mean, noise_sweep


def build(runs: Runs) -> Result:
    """The sweep over label noise, and the correlation of disparity with the generalization gap in the last epochs."""
    groups = complete_sweep(runs, NOISE_FC_CIFAR10).values()
    numbers = {
        f"fc_cifar10.end.rho.{name}": correlation_across(
            [(late_mean(group, DISPARITY), late_mean(group, name)) for group in groups]
        )
        for name in ("generalization_loss", "generalization_error")
    }
    sweep = noise_sweep(runs, "fc_cifar10", NOISE_FC_CIFAR10, metrics=("test_error",))
    return merge(sweep, Result.from_numbers(numbers))


ITEM = Item(
    label="fig:fc_cifar10",
    claim="For a fully connected network on CIFAR-10, gradient disparity ranks the levels of label noise as the "
    "generalization gap does.",
    stage=2,
    specs=full_runs(NOISE_FC_CIFAR10.values()),
    build=build,
    laptop="2,560 samples instead of 50,000, 100 epochs in batches of 32 at a learning rate of 0.05. The network is "
    "that of the paper.",
    findings="In the first epochs disparity orders the levels of noise. At the end it is roughly the other way round: "
    "when a network has fitted its labels, losses are close to 0 and re-scaling divides by their small deviation, so "
    "that disparity is large; clean labels are fitted first. The generalization error grows with the noise.",
    at_paper_size="12,800 of the 50,000 training samples and the first 2,000 test samples, 300 epochs, one seed. Up "
    "to about epoch 90 disparity orders the five levels of noise (from 16 without noise to 548 with random labels on "
    "average over the first ten epochs), while generalization loss and error do not. From about epoch 200 on, when "
    "all labels are fitted, its order is reversed, while the generalization gap orders the levels. In its last epoch "
    "the run with 25 % diverged (training error 32 %), so its last values are too low.",
    seconds=seconds_of,
)
