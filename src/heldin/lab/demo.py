"""The demo: few digits, half of them with a random label, and three stopping methods.

The setting is that of `examples/digits.py`, small enough for about two minutes on two cores. It was chosen by test
curves alone, before any signal was measured in it: of the settings of the study with data that installed packages
contain, it is the one in which training to the end costs most.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from heldin.lab.conclusion import conclude
from heldin.lab.costs import unit_seconds
from heldin.lab.curves import Group, groups
from heldin.lab.engine import Progress, run_all
from heldin.lab.method_tables import comparison
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.report import write_report
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from heldin.lab.tables import NOTES, Table
from heldin.rules import NthRise

SETTING = RunSpec(
    dataset="digits",
    num_samples=700,
    label_noise=0.5,
    model="mlp",
    optimizer="sgd",
    learning_rate=0.05,
    batch_size=32,
    epochs=255,
    signals=("gradient_disparity", "gradient_disparity@fixed"),
)
SEEDS = (0, 1)
FOLDS = 5
COLUMNS = ("method", "protocol", "epoch", "test error", "test loss", "batch gradients", "seconds", NOTES)


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    group: Group
    table: Table  # the stopping methods compared
    conclusion: str  # what the numbers say, in one sentence
    report: Path
    num_computed: int  # runs that were not recorded before
    seconds: float  # the time they took


def demo_specs(setting: RunSpec = SETTING, seeds: tuple[int, ...] = SEEDS) -> list[RunSpec]:
    """For each seed, a run on all the data that records the signals, and one for each fold, which needs none."""
    full = [setting.with_(seed=seed) for seed in seeds]
    folded = [spec.with_(fold=fold, folds=FOLDS, signals=()) for spec in full for fold in range(FOLDS)]
    return [*full, *folded]  # the longest first, so that no core waits at the end


def run_demo(
    store: Store,
    *,
    jobs: int = 2,
    data_root: Path | str | None = None,
    progress: Progress | None = None,
    setting: RunSpec = SETTING,
    seeds: tuple[int, ...] = SEEDS,
) -> Demo:
    """Run what is not recorded yet, compare, and write the report into the store's folder."""
    specs = demo_specs(setting, seeds)
    num_computed = sum(not store.folder(spec).done for spec in specs)
    start = time.perf_counter()
    records = run_all(specs, store, jobs=jobs, data_root=data_root, progress=progress)
    seconds = time.perf_counter() - start
    timings = {record.id: store.folder(record.spec).timings() for record in records}
    [group] = groups(records)
    path = write_report(records, store.root / "demo.html", title="heldin demo", timings=timings)
    units = unit_seconds(line for lines in timings.values() for line in lines)
    table = comparison(group, demo_methods(group), units=units)
    table = replace(table, columns=tuple(column for column in COLUMNS if column in table.columns))
    return Demo(group, table, conclude(group), path, num_computed, seconds)


def describe(setting: RunSpec = SETTING, seeds: tuple[int, ...] = SEEDS) -> str:
    """A description of what is run."""
    return (
        f"Data: {setting.num_samples} samples of {setting.dataset}, {100 * setting.label_noise:g} % with a random "
        f"label.\nTraining: 2 layers of 256 units, {setting.optimizer}, learning rate {setting.learning_rate:g}, "
        f"batch size {setting.batch_size}, {setting.epochs} epochs.\nRuns: for each of {len(seeds)} seeds, one run on "
        f"all samples and {FOLDS} runs that each leave out one fold."
    )


def demo_methods(group: Group) -> list[StoppingMethod]:
    """What the demo compares: disparity, cross-validation, no early stopping, and the best epoch as the reference."""
    rule = NthRise(5)
    return [
        *(StoppingMethod(Kind.SIGNAL, signal, rule) for signal in group.signals),
        StoppingMethod(Kind.KFOLD, rule=rule, folds=FOLDS),
        StoppingMethod(Kind.KPLUS, rule=rule, folds=FOLDS),
        StoppingMethod(Kind.NEVER),
        StoppingMethod(Kind.ORACLE_ERROR),
    ]
