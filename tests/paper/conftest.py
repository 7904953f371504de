"""Records that were not trained: enough for every item to build something."""

import math
import random

import pytest
from tests.records import record_of

from heldin.lab.costs import UnitSeconds
from heldin.lab.store import RunRecord
from paper.harness import Runs
from paper.items import ITEMS

EPOCHS = 10


def invented_record(spec):
    """A run of few epochs with plausible curves."""
    chance = random.Random(spec.with_(signals=()).id)  # runs that differ in their signals have the same metrics
    measured = random.Random(spec.id)
    epochs = []
    for epoch in range(EPOCHS):
        test = 2.0 - 0.3 * epoch + 0.05 * epoch**2 + spec.label_noise + chance.random() * 0.02
        line = {"epoch": epoch, "train_loss": 2.0 * math.exp(-epoch / 3), "train_error": 0.8 * math.exp(-epoch / 3)}
        line |= {"test_loss": test, "test_error": test / 5, "test_top5": test / 6, "test_auc": 0.7}
        if spec.fold is not None:
            line |= {"val_loss": test + 0.1 * chance.random(), "val_error": 0.5}
        line["parameter_norm"] = 30.0 + epoch
        line["signals"] = {label: 1.0 + test + 0.02 * measured.random() for label in spec.signals}
        epochs.append(line)
    return RunRecord(spec, tuple(epochs), True)


@pytest.fixture(scope="session")
def invented_runs():
    """A function that returns runs of a profile for one item."""
    return lambda item, profile: Runs(profile, [invented_record(spec) for spec in dict.fromkeys(item.specs(profile))])


@pytest.fixture(scope="session")
def runs():
    """All runs of the laptop profile."""
    specs = dict.fromkeys(spec for item in ITEMS for spec in item.specs("laptop"))
    seconds = {spec.id: UnitSeconds(0.1, 0.01, 0.001, 0.03) for spec in specs if spec.fold is None}
    return Runs("laptop", [invented_record(spec) for spec in specs], seconds)


@pytest.fixture(scope="session")
def results(runs):
    """The results of all items, by label."""
    return {item.label: item.build(runs.only(item.specs("laptop"))) for item in ITEMS}


@pytest.fixture
def make_record():
    """A function that returns a run with these curves, by name; a curve of a signal only if the spec measures it."""

    def make_record(spec, **curves):
        num = max(map(len, curves.values()))
        known = {"train_loss": [1.0] * num, "test_loss": [1.0] * num, "test_error": [0.5] * num}
        return record_of(spec, **known | curves)

    return make_record
