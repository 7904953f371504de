"""Table var: disparity and variance, correlated with the test loss."""

from heldin.lab.compare import correlation_table
from heldin.lab.curves import Estimate, estimate
from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import correlations
from paper.making import MEAN_CURVE, PER_RUN, group_of
from paper.settings import (
    RIVALS_CIFAR10,
    RIVALS_CIFAR10_NOISY,
    RIVALS_MNIST,
    RIVALS_MNIST_NOISY,
    VGG16,
    VGG16_NOISY,
    VGG19,
    VGG19_NOISY,
    seconds_of,
)

SETTINGS = (
    RIVALS_MNIST, RIVALS_MNIST_NOISY, VGG16, VGG16_NOISY, VGG19, VGG19_NOISY, RIVALS_CIFAR10, RIVALS_CIFAR10_NOISY,
)  # fmt: skip
SIGNALS = {"gd": "gradient_disparity", "var": "gradient_variance"}
TRIED = "gradient_disparity[rescale=none]"
"""What the table shows beside them, since the correlations of the two do not come out as in the paper."""


def build(runs: Runs) -> Built:
    """Both correlations for each setting, and in how many of them that of disparity is the larger one."""
    found = [(setting, group) for setting in SETTINGS if (group := group_of(runs, setting)) is not None and group.full]
    numbers = {
        f"{setting.key}.{name}": rho
        for setting, group in found
        for name, signal in SIGNALS.items()
        if (rho := correlations([group.full], signal, "test_loss"))
    }
    for protocol in (PER_RUN, MEAN_CURVE):
        ahead = [
            numbers[f"{setting.key}.gd"][protocol].mean - numbers[f"{setting.key}.var"][protocol].mean
            for setting, _ in found
            if all(protocol in numbers.get(f"{setting.key}.{name}", {}) for name in SIGNALS)
        ]
        if ahead:
            numbers.setdefault("gd-var", {})[protocol] = estimate(ahead)
            won = sum(each > 0.0 for each in ahead)
            numbers.setdefault("won", {})[protocol] = Estimate(float(won), None, len(ahead))
    measured = [group for _, group in found if all(signal in group.signals for signal in SIGNALS.values())]
    table = correlation_table(measured, [*SIGNALS.values(), TRIED]) if measured else None
    return Built(tables={"var": table} if table else {}, numbers=numbers)


ITEM = Item(
    label="tab:var",
    claim="Over training, gradient disparity correlates with the test loss more than the variance of gradients does, "
    "in seven of eight settings.",
    stage=3,
    specs=lambda profile: [spec for setting in SETTINGS for spec in setting.full(profile)],
    build=build,
    differs="12.8 k samples become 2,000 of MNIST and 1,280 of CIFAR-10; widths 1/4 (AlexNet), 1/8 (VGG), 1/16 "
    "(ResNet).",
    found="On CIFAR-10 the correlations are below 0. Before a network has learnt anything all its losses are nearly "
    "the same, so what gradients are divided by is small and the disparity begins high; it falls as losses "
    "spread, for most of these short runs, while the test loss already rises. Tried: the disparity without "
    "re-scaling, which the table shows beside them, and which does go with the test loss there.",
    seconds=seconds_of,
)
