"""How the laptop settings on CIFAR were chosen: by a rule on training and test curves that reads no signal.

The rule, for one run without signals and with a seed that no other run has. The best epoch is the one of the lowest
test loss.

1. At the best epoch the test error is at most 70 % of that of guessing (0.9 for 10 classes, 0.99 for 100).
2. The training error falls to the fraction of wrong labels or below it. Without label noise, to 1 % or below.
3. The best epoch lies between a tenth and a half of the horizon.

Candidates are listed in the order of preference: few samples first, then the network that resembles the paper's most.
The first that passes is used for all runs of settings of this kind, and later ones are not run; settings with another
depth, width, optimizer or batch size change only that. If none passes, but some fail by their test error alone, the
one with the lowest test error is used, and the table says so, unless it is above 90 % of guessing. Otherwise settings
of this kind are not run at laptop size: a network that does not fit its labels, or whose best epoch is at the end of
training, leaves nothing for early stopping to gain. No candidate has more than 5,000 samples. The last candidate of
each kind with random labels, VGG-8 on CIFAR-100, and the last three with the squared error, were added after the others
had failed. ResNet-18 is not a candidate of CIFAR-100 with random labels, since it already fails without them.

The runs of candidates record no signals. One choice was made after signals had been read: that candidates which fail by
more than their test error are not used was decided when a CNN on CIFAR-100, the choice until then, had been run with
signals. Its test loss jumps between 4 and 9 from epoch to epoch, mostly above that of guessing, 4.6. It also replaced a
ResNet-8 of width 1/2 with random labels by one of width 1. A VGG-8 of width 1/2 on CIFAR-100 was a candidate too; it
was dropped for its cost when that of width 1/4 had been run, so the lower test error of the two is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table
from paper.data import CIFAR10, CIFAR100, MNIST
from paper.harness import Item, Result, Runs
from paper.network_names import scaled_title
from paper.plots import SettingCurvesDisplay

SEED = 100
MAX_OF_CHANCE = 0.7
TEST_ERROR = "test error"
MAX_USED_OF_CHANCE = 0.9  # if no candidate passes
MAX_TRAIN_ERROR = 0.01  # without label noise
BEST_BETWEEN = (0.1, 0.5)  # of the horizon

NUM_CLASSES = {CIFAR10: 10, CIFAR100: 100, MNIST: 10, "mnist": 10, "mnist5k": 10, "breastmnist": 2}

_NO_SIGNALS = RunSpec(signals=(), seed=SEED)
_VGG13 = _NO_SIGNALS.with_(model="vgg13", scale=0.125, init="he_normal", batch_size=32, epochs=40)
_VGG8 = _VGG13.with_(model="vgg8", scale=0.25)
_RESNET18 = _NO_SIGNALS.with_(model="resnet18", scale=0.125, init="xavier_uniform", batch_size=32, epochs=30)
_RESNET8 = _RESNET18.with_(model="resnet8", scale=1.0)
_FC = _NO_SIGNALS.with_(model="fully_connected", init="xavier_uniform", batch_size=32, epochs=100)
_CNN = _NO_SIGNALS.with_(model="cnn_batchnorm", scale=2.0, init="he_normal", batch_size=64, epochs=30)


RATES = {
    "momentum": (0.01, 0.002),
    "adagrad": (0.01, 0.002),
    "adadelta": (1.0, 0.2),
    "rmsprop": (0.01, 0.001, 0.0002),
    "adam": (0.001, 0.0002),
}
"""Learning rates of optimizers other than SGD: torch's default first, for SGD with momentum the paper's rate of SGD."""


def _candidates(dataset: str, *networks: tuple[RunSpec, int, float], label_noise: float = 0.0) -> list[RunSpec]:
    """Return the candidates of a kind of setting, from networks with numbers of samples and learning rates."""
    return [
        network.with_(dataset=dataset, label_noise=label_noise, num_samples=samples, learning_rate=rate)
        for network, samples, rate in networks
    ]


CANDIDATES: dict[str, list[RunSpec]] = {
    "CIFAR-10, VGG": _candidates(
        CIFAR10,
        (_VGG13, 1280, 0.02),
        (_VGG8, 1280, 0.02),
        (_VGG13, 2560, 0.02),
        (_VGG13, 2560, 0.04),
        (_VGG8, 2560, 0.02),
        (_VGG13, 5000, 0.02),
    ),
    "CIFAR-10, VGG, 50 % random": _candidates(
        CIFAR10,
        (_VGG13, 2560, 0.02),
        (_VGG8, 2560, 0.02),
        (_VGG13, 5000, 0.02),
        (_VGG8, 5000, 0.02),
        (_VGG8, 5000, 0.005),
        label_noise=0.5,
    ),
    "CIFAR-10, ResNet-18": _candidates(
        CIFAR10,
        (_RESNET18, 1280, 0.02),
        (_RESNET18, 2560, 0.02),
        (_RESNET18, 2560, 0.05),
        (_RESNET8, 2560, 0.05),
        (_RESNET18, 5000, 0.02),
    ),
    "CIFAR-10, ResNet-18, 50 % random": _candidates(
        CIFAR10,
        (_RESNET18, 2560, 0.02),
        (_RESNET18, 5000, 0.02),
        (_RESNET8, 5000, 0.05),
        (_RESNET8.with_(scale=0.5), 5000, 0.05),
        label_noise=0.5,
    ),
    "CIFAR-10, fully connected": _candidates(CIFAR10, (_FC, 2560, 0.05), (_FC, 5000, 0.05), (_FC, 5000, 0.02)),
    "CIFAR-100": _candidates(
        CIFAR100,
        (_RESNET18, 5000, 0.05),
        (_CNN, 5000, 0.02),
        (_CNN, 5000, 0.05),
        (_VGG8, 5000, 0.01),
    ),
    "CIFAR-100, 50 % random": _candidates(
        CIFAR100, (_CNN, 5000, 0.02), (_CNN, 5000, 0.05), (_VGG8, 5000, 0.01), label_noise=0.5
    ),
    "CIFAR-10, VGG, squared error": _candidates(
        CIFAR10,
        (_VGG8.with_(loss="mse"), 1280, 0.02),
        (_VGG8.with_(loss="mse"), 1280, 0.08),
        (_VGG8.with_(loss="mse", epochs=80), 2560, 0.02),
        (_VGG8.with_(loss="mse", epochs=80), 2560, 0.04),
        (_VGG8.with_(loss="mse", epochs=120), 2560, 0.04),
    ),
    **{
        f"CIFAR-10, VGG, {name}": _candidates(CIFAR10, *((_VGG8.with_(optimizer=name), 1280, r) for r in rates))
        for name, rates in RATES.items()
    },
}
"""The candidates of each kind of setting, in the order of preference."""

CHOSEN = {
    "CIFAR-10, VGG": 1,
    "CIFAR-10, VGG, 50 % random": 4,
    "CIFAR-10, ResNet-18": 2,
    "CIFAR-10, ResNet-18, 50 % random": 2,
    "CIFAR-10, fully connected": 0,
    "CIFAR-100": 3,
    "CIFAR-100, 50 % random": None,
    "CIFAR-10, VGG, squared error": 4,
    "CIFAR-10, VGG, momentum": 1,
    "CIFAR-10, VGG, adagrad": 1,
    "CIFAR-10, VGG, adadelta": 0,
    "CIFAR-10, VGG, rmsprop": 0,
    "CIFAR-10, VGG, adam": 1,
}
"""The number of the candidate that the rule chose, by kind; None if settings of this kind are not run."""

NONE_PASSES = (
    "CIFAR-10, VGG, 50 % random",
    "CIFAR-10, ResNet-18, 50 % random",
    "CIFAR-100",
    "CIFAR-100, 50 % random",
)
"""The kinds of which no candidate passes."""


def chosen(kind: str) -> RunSpec:
    """Return the candidate of this kind that the rule chose, with seed 0."""
    number = CHOSEN[kind]
    assert number is not None
    return CANDIDATES[kind][number].with_(seed=0)


def needed(kind: str) -> list[RunSpec]:
    """Return the candidates that had to be run: up to the one that passes, or all of them."""
    return CANDIDATES[kind] if kind in NONE_PASSES else CANDIDATES[kind][: (CHOSEN[kind] or 0) + 1]


@dataclass(frozen=True)
class Learning:
    """How well a network learned in one run.

    Attributes:
        best_epoch: The epoch of the lowest test loss.
        epochs: The horizon.
        of_chance: The test error at the best epoch, divided by that of guessing.
        train_error: The lowest training error.
        wrong_labels: The fraction of training labels that are wrong.
    """

    best_epoch: int
    epochs: int
    of_chance: float
    train_error: float
    wrong_labels: float

    @property
    def failures(self) -> list[str]:
        """The parts of the rule that do not hold."""
        low, high = (part * self.epochs for part in BEST_BETWEEN)
        return [
            text
            for text, holds in (
                (TEST_ERROR, self.of_chance <= MAX_OF_CHANCE),
                ("training error", self.train_error <= max(self.wrong_labels, MAX_TRAIN_ERROR)),
                ("best epoch", low <= self.best_epoch <= high),
            )
            if not holds
        ]


def learning_of(record: RunRecord) -> Learning:
    """Return how well the network of a run learned."""
    spec, losses = record.spec, record.curve("test_loss")
    best = min((epoch for epoch, loss in enumerate(losses) if loss is not None), key=lambda epoch: losses[epoch] or 0.0)
    guessing = 1.0 - 1.0 / NUM_CLASSES[spec.dataset]
    return Learning(
        best_epoch=best,
        epochs=len(record.epochs),
        of_chance=(record.curve("test_error")[best] or 0.0) / guessing,
        train_error=min(error for error in record.curve("train_error") if error is not None),
        wrong_labels=spec.label_noise * guessing,
    )


def choice_table(runs: Runs) -> Table:
    """Return one row per candidate: how well its network learned, and whether it was chosen."""
    rows = []
    for kind in CHOSEN:
        found = {spec: _learning(runs, spec) for spec in needed(kind)}
        best = choose(found)
        for spec, learning in found.items():
            rows.append({"setting": kind, **_describe(spec), **_measured(learning), "chosen": "yes" * (spec == best)})
    return Table(tuple(rows[0]), tuple(rows), "Candidates")


def choose(found: Mapping[RunSpec, Learning | None]) -> RunSpec | None:
    """Return the first candidate that passes; if none does, the lowest test error of those that fail by nothing else.

    None if a candidate was not run, if all fail by more, or if the lowest test error is close to that of guessing.
    """
    usable: dict[RunSpec, Learning] = {}
    for spec, learning in found.items():
        if learning is None:
            return None
        if not learning.failures:
            return spec
        if learning.failures == [TEST_ERROR] and learning.of_chance <= MAX_USED_OF_CHANCE:
            usable[spec] = learning
    return min(usable, key=lambda spec: usable[spec].of_chance, default=None)


def _learning(runs: Runs, spec: RunSpec) -> Learning | None:
    group = runs.group(spec)
    return None if group is None or not group.full else learning_of(group.full[0])


def _describe(spec: RunSpec) -> dict[str, str]:
    return {
        "network": scaled_title(spec),
        "samples": f"{spec.num_samples:,}",
        "learning rate": f"{spec.learning_rate:g}",
    }


def _measured(learning: Learning | None) -> dict[str, str]:
    if learning is None:
        return dict.fromkeys(("test error / guessing", "lowest training error", "best epoch", "rule"), "not run")
    return {
        "test error / guessing": f"{learning.of_chance:.3f}",
        "lowest training error": f"{learning.train_error:.1%} (wrong labels: {learning.wrong_labels:.0%})",
        "best epoch": f"{learning.best_epoch} of {learning.epochs}",
        "rule": "fails: " + ", ".join(learning.failures) if learning.failures else "passes",
    }


def build(runs: Runs) -> Result:
    """The table of candidates, and their test and training curves."""
    figures = {}
    for name in ("test_loss", "test_error", "train_error"):
        for number, kind in enumerate(CHOSEN):
            titles = _candidate_titles(needed(kind))
            groups = {title: group for spec, title in titles.items() if (group := runs.group(spec)) is not None}
            if groups:
                figures[f"{name}_{number}"] = SettingCurvesDisplay(groups, name, kind)
    return Result(tables={"choice": choice_table(runs)}, figures=figures)


def _candidate_titles(candidates: Sequence[RunSpec]) -> dict[RunSpec, str]:
    """Return the titles of candidates in a legend: in what they differ."""
    found = {
        spec: (
            scaled_title(spec),
            f"{spec.num_samples:,} samples",
            f"rate {spec.learning_rate:g}",
            f"{spec.epochs} epochs",
        )
        for spec in candidates
    }
    differing = [place for place, parts in enumerate(zip(*found.values(), strict=True)) if len({*parts}) > 1] or [0]
    return {spec: ", ".join(parts[place] for place in differing) for spec, parts in found.items()}


def seconds_of(spec: RunSpec) -> float:
    """Estimate how long a run takes on one core: 1 ms per sample and epoch, most of it in convolutions."""
    return spec.epochs * (spec.num_samples or 0) * 0.001


ITEM = Item(
    label="choice",
    claim="Not in the paper: how the laptop settings on CIFAR were chosen, by curves of runs that measure no signal.",
    stage=1,
    specs=lambda profile: [spec for kind in CHOSEN for spec in needed(kind)] if profile == "laptop" else [],
    build=build,
    laptop=(__doc__ or "").split("\n\n", 1)[1].strip(),
    seconds=seconds_of,
)
