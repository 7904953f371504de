"""Records that nobody trained: enough of them that every item has something to build from."""

import math
import random

import pytest
from paper.items import ITEMS

from heldin.lab.costs import UnitSeconds
from heldin.lab.reproducing import Runs
from heldin.lab.store import RunRecord

EPOCHS = 10


def invented(spec):
    """A run of few epochs with plausible curves."""
    chance = random.Random(spec.id)
    epochs = []
    for epoch in range(EPOCHS):
        test = 2.0 - 0.3 * epoch + 0.05 * epoch**2 + spec.label_noise + chance.random() * 0.02
        line = {"epoch": epoch, "train_loss": 2.0 * math.exp(-epoch / 3), "train_error": 0.8 * math.exp(-epoch / 3)}
        line |= {"test_loss": test, "test_error": test / 5, "test_top5": test / 6, "test_auc": 0.7}
        if spec.fold is not None:
            line |= {"val_loss": test + 0.1 * chance.random(), "val_error": 0.5}
        line["parameter_norm"] = 30.0 + epoch
        line["signals"] = {label: 1.0 + test + 0.02 * chance.random() for label in spec.signals}
        epochs.append(line)
    return RunRecord(spec, tuple(epochs), True)


@pytest.fixture(scope="session")
def runs_for():
    """Runs of a profile for one item."""
    return lambda item, profile: Runs(profile, [invented(spec) for spec in dict.fromkeys(item.specs(profile))])


@pytest.fixture(scope="session")
def runs():
    specs = dict.fromkeys(spec for item in ITEMS for spec in item.specs("laptop"))
    units = {spec.id: UnitSeconds(0.1, 0.01, 0.001, 0.03) for spec in specs if spec.fold is None}
    return Runs("laptop", [invented(spec) for spec in specs], units)


@pytest.fixture
def written():
    """A run with the curves that are given, by name; those of a signal where the spec measures it."""

    def written(spec, **curves):
        num = max(map(len, curves.values()))
        told = {"train_loss": [1.0] * num, "test_loss": [1.0] * num, "test_error": [0.5] * num} | curves
        epochs = []
        for epoch in range(num):
            line = {name: values[epoch] for name, values in told.items()}
            signals = {name: line.pop(name) for name in spec.signals if name in line}
            epochs.append({"epoch": epoch, **line, "signals": signals})
        return RunRecord(spec, tuple(epochs), True)

    return written
