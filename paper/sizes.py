"""Beside the paper: what each setting is here, and what it is in the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Cell, Table
from paper.data import CIFAR10, CIFAR100
from paper.settings import (
    BATCHES_VGG,
    NOISE_CIFAR100,
    NOISE_FC_CIFAR10,
    NOISE_FC_MNIST,
    OPTIMIZERS,
    RELATED,
    SEEDS,
    SEVEN,
    SIZES_MSE,
    SIZES_VGG,
    VGG16,
    VGG19,
    WIDTHS_FC,
    WIDTHS_VGG,
    Setting,
)

NUM_SAMPLES = {  # of the data as it is: to train, to test
    "mnist": (60000, 10000),
    "cifar10": (50000, 10000),
    "cifar100": (50000, 10000),
    "mnist5k": (4000, 1000),
    CIFAR10: (50000, 2000),
    CIFAR100: (50000, 2000),
}


def _point(title: str, series: dict, laptop: float, paper: float) -> Setting:
    """One row for a series: a point of it at each size."""
    return replace(series[laptop], title=title, paper=series[paper].paper)


SHOWN = (
    *SEVEN,
    *RELATED,
    replace(NOISE_FC_MNIST[0.0], title="MNIST, fully connected"),
    replace(NOISE_FC_CIFAR10[0.0], title="CIFAR-10, fully connected"),
    replace(NOISE_CIFAR100[0.0], title="CIFAR-100, ResNet-18, levels of noise"),
    _point("CIFAR-10, VGG-16, sizes", SIZES_VGG, 1280, 12800),
    _point("CIFAR-10, VGG-16, squared error, sizes", SIZES_MSE, 1280, 12800),
    _point("CIFAR-10, VGG-11, batch sizes", BATCHES_VGG, 128, 128),
    _point("CIFAR-10, VGG-11, widths", WIDTHS_VGG, 0.125, 1.0),
    _point("CIFAR-10, fully connected, widths", WIDTHS_FC, 1.0, 1.0),
    VGG16,
    VGG19,
    *OPTIMIZERS.values(),
)

COLUMNS: dict[str, Callable[[RunSpec], Cell]] = {
    "training samples": lambda spec: f"{spec.num_samples or NUM_SAMPLES[spec.dataset][0]:,}",
    "test samples": lambda spec: f"{NUM_SAMPLES[spec.dataset][1]:,}",
    "width": lambda spec: f"{spec.scale:g}",
    "learning rate": lambda spec: f"{spec.learning_rate:g}",
    "batch": lambda spec: str(spec.batch_size),
    "epochs": lambda spec: str(spec.epochs),
}


def sizes() -> Table:
    """A row a setting: here, and in parentheses in the paper where that is another number."""
    rows = []
    for setting in SHOWN:
        here, there = setting.laptop, setting.paper
        row = {name: _both(told(here), told(there)) for name, told in COLUMNS.items()}
        folds = _both(*(str(setting.folds.get(profile, "-")) for profile in ("laptop", "paper")))
        rows.append({"setting": setting.title, **row, "folds": folds})
    return Table(("setting", *COLUMNS, "folds"), tuple(rows))


def _both(here: Cell, there: Cell) -> str:
    return str(here) if here == there else f"{here} ({there})"


def _built(runs: Runs) -> Built:
    return Built(tables={"settings": sizes()})


ITEM = Item(
    label="sizes",
    claim="Beside the paper: what each setting is here, and in parentheses what it is in the paper.",
    stage=1,
    specs=lambda profile: [],
    build=_built,
    differs=f"{len(SEEDS['laptop'])} seeds ({len(SEEDS['paper'])}). Of a series, which changes one of these numbers, "
    "one point is shown; which points it has stands with its item. Widths are factors on all layers.",
    inline=True,
)
