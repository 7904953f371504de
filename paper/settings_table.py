"""Not in the paper: the sizes of all settings at laptop size and at the paper's, and which of their networks learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table
from paper.choice import learning_of
from paper.data import CIFAR10, CIFAR100, MNIST
from paper.harness import Item, Result, Runs
from paper.settings import (
    BATCHES_VGG,
    KFOLD_SETTINGS,
    NOISE_CIFAR100,
    NOISE_FC_CIFAR10,
    NOISE_FC_MNIST,
    NOISY_MNIST,
    OPTIMIZERS,
    RELATED,
    SEEDS,
    SHORT_RUN_SEEDS,
    SIZES_MSE,
    SIZES_VGG,
    VGG16,
    VGG19,
    WIDTHS_FC,
    WIDTHS_VGG,
    Setting,
    seconds_of,
)
from paper.stops import full_group

NUM_SAMPLES = {  # for training, for testing
    "mnist": (60000, 10000),
    "cifar10": (50000, 10000),
    "cifar100": (50000, 10000),
    "mnist5k": (4000, 1000),
    CIFAR10: (50000, 2000),
    CIFAR100: (50000, 2000),
    MNIST: (60000, 2000),
}
SAMPLES_IN_THE_PAPER = {NOISY_MNIST.key: 60000, NOISE_FC_CIFAR10[0.0].key: 50000}
"""Of settings that have fewer training samples in the profile `paper` than in the paper."""


def _point(title: str, sweep: dict, laptop: float, paper: float) -> Setting:
    """Return one row for a sweep: one of its points in each profile."""
    return replace(sweep[laptop], title=title, paper=sweep[paper].paper)


SETTINGS = (
    *KFOLD_SETTINGS,
    *RELATED,
    replace(NOISE_FC_MNIST[0.0], title="MNIST, fully connected"),
    replace(NOISE_FC_CIFAR10[0.0], title="CIFAR-10, fully connected"),
    replace(NOISE_CIFAR100[0.0], title="CIFAR-100, ResNet-18, levels of noise"),
    _point("CIFAR-10, VGG-16, sizes", SIZES_VGG, 1280, 12800),
    _point("CIFAR-10, VGG-16, squared error, sizes", SIZES_MSE, 2560, 12800),
    _point("CIFAR-10, VGG-11, batch sizes", BATCHES_VGG, 128, 128),
    _point("CIFAR-10, VGG-11, widths", WIDTHS_VGG, 0.25, 1.0),
    _point("CIFAR-10, fully connected, widths", WIDTHS_FC, 1.0, 1.0),
    VGG16,
    VGG19,
    *OPTIMIZERS.values(),
)

COLUMNS: dict[str, Callable[[RunSpec], str]] = {
    "network": lambda spec: spec.model,
    "training samples": lambda spec: f"{spec.num_samples or NUM_SAMPLES[spec.dataset][0]:,}",
    "test samples": lambda spec: f"{NUM_SAMPLES[spec.dataset][1]:,}",
    "width": lambda spec: f"{spec.scale:g}",
    "learning rate": lambda spec: f"{spec.learning_rate:g}",
    "batch": lambda spec: str(spec.batch_size),
    "epochs": lambda spec: str(spec.epochs),
}


def settings_table(runs: Runs) -> Table:
    """Return one row per setting: its sizes, and whether its networks learn.

    At laptop size all settings are shown, with the number of the profile `paper` in parentheses if it differs; at the
    paper's size those that were run.
    """
    shown = SETTINGS if runs.profile == "laptop" else [each for each in SETTINGS if full_group(runs, each) is not None]
    rows = []
    for setting in shown:
        sizes = {profile: _sizes(setting, profile) for profile in ("laptop", "paper")}
        row = sizes["paper"]
        if runs.profile == "laptop":
            row = {name: _both(size, sizes["paper"][name]) for name, size in sizes["laptop"].items()}
        rows.append({"setting": setting.title, **row, "learns": _learns(runs, setting)})
    return Table(("setting", *COLUMNS, "folds", "learns"), tuple(rows))


def _sizes(setting: Setting, profile: str) -> dict[str, str]:
    """Return the sizes of a setting in a profile; "-" if it is not run there."""
    spec = setting.base(profile)
    found = {name: "-" if spec is None else cell(spec) for name, cell in COLUMNS.items()}
    if profile == "paper" and setting.key in SAMPLES_IN_THE_PAPER:
        found["training samples"] += f" of {SAMPLES_IN_THE_PAPER[setting.key]:,}"
    return {**found, "folds": str(setting.folds.get(profile, "-"))}


def _learns(runs: Runs, setting: Setting) -> str:
    """Return whether the runs pass the rule of `paper.choice`, or which parts fail in how many of them."""
    group = full_group(runs, setting)
    if group is None:
        return "not run"
    found = [learning_of(record).failures for record in group.full]
    passing = found.count([])
    if 2 * passing > len(found):
        return f"yes ({passing} of {len(found)} runs)"
    counts = Counter(failure for failures in found for failure in failures)
    return "no: " + ", ".join(f"{name} ({num} of {len(found)})" for name, num in counts.items())


def _both(here: str, there: str) -> str:
    return here if here == there else f"{here} ({there})"


def build(runs: Runs) -> Result:
    """The table of settings."""
    table = settings_table(runs)
    return Result(tables={"settings": table} if table.rows else {})


LEARNS = (
    "A network *learns* if most of its runs pass the rule in `paper/choice.py`: at the epoch of the lowest test loss "
    "the test error is at most 70 % of that of guessing, the training error falls to the fraction of wrong labels (or "
    "to 1 %), and that epoch lies between a tenth and a half of the horizon. What early stopping gains on networks "
    "that do not learn says little."
)


ITEM = Item(
    label="settings",
    claim="Not in the paper: the sizes of all settings, and whether their networks learn.",
    stage=4,
    specs=lambda profile: [spec for setting in SETTINGS for spec in setting.full(profile)],
    build=build,
    laptop="In parentheses: the number of the profile `paper`, if it differs. "
    f"{len(SEEDS['laptop'])} seeds, {len(SHORT_RUN_SEEDS)} where a run takes less than a minute and in the profile "
    "`paper`. For a sweep, which varies one of these numbers, "
    "one point is shown, the one that was chosen by the rule if there was one; its item lists all of them. "
    f"Widths are factors on all layers. {LEARNS}",
    at_paper_size=f"The settings that were run. {LEARNS} AlexNet on 256 digits fails by its best epoch, which is after "
    "half of the 80 epochs in four of five runs; the stop of disparity is long before it. VGG-13 fails narrowly: its "
    "test error is 70.4 % of that of guessing, and its best epoch is 5 of 60. On noisy MNIST the test loss is lowest "
    "near the end of the 60 epochs.",
    seconds=seconds_of,
    inline=True,
)
