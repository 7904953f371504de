"""The settings of the study: what is trained, and in which range the best epoch should lie.

A slot is a dataset, a network and a way of training it, with a first learning rate. The rule in `study.choice` searches
the learning rate on training and test curves alone, and sets the horizon. A slot for which it finds none is left out.
The ranges differ, so that no fixed epoch is right for all settings. Labels are clean in more than a third of the slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heldin.lab.data import DATASETS
from heldin.lab.spec import RunSpec

CHOICE_SEED = 1000  # of the runs that choose settings, and of no other run
SEEDS = (0, 1, 2)
FOLDS = 5
READINGS = 4  # detailed readings in each of the first epochs

SIGNALS = (
    "gradient_disparity",
    "gradient_disparity[rescale=std_detached]",
    "gradient_disparity[rescale=none]",
    "gradient_disparity[rescale=std_detached]@training",
    "label_wave",
    "gwa",
)
"""What runs on all the data measure in every epoch, on new batches or from the last batches of training; all else
follows from their detailed readings."""

MAJORITY_ERROR = {
    "letter": 0.96,
    "spambase": 0.40,
    "wine_quality": 0.55,
    "sms_spam": 0.13,
    "digits": 0.90,
    "breast_cancer": 0.37,
    "breastmnist": 0.27,
    "retinamnist": 0.56,
    "mnist5k": 0.90,
    "cifar10": 0.90,
    "cifar100": 0.99,
}
"""The test error of a network that always predicts the most frequent class."""

VERY_EARLY, EARLY, LATE, VERY_LATE = (2, 5), (5, 15), (15, 50), (50, 150)


@dataclass(frozen=True)
class Slot:
    """A place in the study, to be filled by a learning rate.

    Attributes:
        spec: What is trained, with the learning rate of the first trial.
        best_between: The range of the number of epochs with the lowest test loss.
        horizon: The horizon of the setting, as a multiple of its best epoch.
    """

    spec: RunSpec
    best_between: tuple[int, int]
    horizon: int = 4

    @property
    def name(self) -> str:
        """The name of the slot: what is trained, and the range."""
        spec = self.spec
        parts = [
            spec.dataset,
            spec.model + (f"*{spec.scale:g}" if spec.scale != 1.0 else ""),
            f"{spec.num_samples} samples",
            f"{spec.label_noise:.0%} noise" if spec.label_noise else "clean",
            f"{spec.optimizer}, batches of {spec.batch_size}",
            f"decay {spec.weight_decay:g}" if spec.weight_decay else "",
            "augmented" if spec.augment else "",
            f"best at {self.best_between[0]}-{self.best_between[1]}",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def num_test(self) -> int:
        """The number of test samples."""
        size = DATASETS[self.spec.dataset].size
        assert size is not None
        return self.spec.num_test or size[1]

    def trial(self, rate: float) -> RunSpec:
        """Return the run that tries a learning rate. Its horizon is three times the end of the range."""
        return self.spec.with_(learning_rate=rate, epochs=3 * self.best_between[1])


def _slot(
    dataset: str,
    num_samples: int,
    model: str,
    best_between: tuple[int, int],
    optimizer: str,
    rate: float,
    *,
    noise: float = 0.0,
    batch: int = 32,
    test: int | None = 1000,
    **changes: object,
) -> Slot:
    name, _, scale = model.partition("*")
    spec = RunSpec(
        dataset=dataset,
        num_samples=num_samples,
        num_test=test,
        label_noise=noise,
        model=name,
        scale=float(scale or 1.0),
        optimizer=optimizer,
        learning_rate=rate,
        batch_size=batch,
        seed=CHOICE_SEED,
        signals=(),
    )
    return Slot(spec.with_(**changes), best_between)


_SLOTS = (
    # Tables
    _slot("letter", 1000, "mlp", EARLY, "adam", 0.001, test=2000),
    _slot("letter", 2000, "mlp", VERY_EARLY, "momentum", 0.05, noise=0.25, test=2000),
    _slot("letter", 2000, "mlp_batchnorm", LATE, "sgd", 0.02, noise=0.5, test=2000),
    _slot("letter", 3000, "mlp_dropout", LATE, "adam", 0.001, noise=0.25, batch=64, test=2000),
    _slot("letter", 1000, "mlp", VERY_LATE, "sgd", 0.05, noise=0.5, test=2000),
    _slot("letter", 2000, "fully_connected*0.5", EARLY, "adamw", 0.0005, noise=0.25, test=2000, weight_decay=0.01),
    _slot("spambase", 500, "mlp", EARLY, "adam", 0.001, test=None),
    _slot("spambase", 1000, "mlp", LATE, "sgd", 0.05, noise=0.5, test=None),
    _slot("spambase", 1000, "mlp_batchnorm", VERY_EARLY, "momentum", 0.01, noise=0.3, test=None),
    _slot("spambase", 500, "mlp_dropout", LATE, "adam", 0.001, test=None),
    _slot("spambase", 1500, "mlp*0.5", VERY_LATE, "sgd", 0.02, noise=0.4, test=None, weight_decay=0.001),
    _slot("wine_quality", 2898, "mlp", EARLY, "adam", 0.001, batch=64, test=None),
    _slot("wine_quality", 1500, "mlp_batchnorm", LATE, "sgd", 0.02, test=None),
    _slot("wine_quality", 1000, "mlp", VERY_EARLY, "momentum", 0.02, test=None),
    _slot("wine_quality", 1500, "mlp_dropout", LATE, "adamw", 0.002, test=None, weight_decay=0.01),
    _slot("wine_quality", 1000, "mlp", VERY_LATE, "sgd", 0.02, test=None),
    _slot("breast_cancer", 200, "mlp", EARLY, "adam", 0.001, test=None, batch=16),
    _slot("breast_cancer", 400, "mlp", LATE, "sgd", 0.05, noise=0.4, test=None),
    _slot("breast_cancer", 400, "mlp_batchnorm", VERY_EARLY, "momentum", 0.01, noise=0.3, test=None, batch=16),
    _slot("breast_cancer", 100, "mlp", VERY_LATE, "sgd", 0.02, test=None, batch=16),
    # Text
    _slot("sms_spam", 1000, "mlp*0.25", EARLY, "adam", 0.001, test=None),
    _slot("sms_spam", 2000, "mlp*0.25", LATE, "sgd", 0.05, noise=0.4, test=None),
    _slot("sms_spam", 1000, "mlp_dropout*0.5", EARLY, "adam", 0.0005, noise=0.4, test=None),
    _slot("sms_spam", 500, "mlp_batchnorm*0.5", VERY_EARLY, "momentum", 0.02, test=None),
    _slot("sms_spam", 1000, "mlp*0.25", VERY_LATE, "sgd", 0.02, noise=0.3, test=None),
    # Small images
    _slot("digits", 1000, "cnn", LATE, "sgd", 0.05, noise=0.5, test=None),
    _slot("digits", 500, "cnn_batchnorm", VERY_EARLY, "adam", 0.001, noise=0.25, test=None),
    _slot("digits", 200, "mlp", EARLY, "adam", 0.002, test=None, batch=16),
    _slot("digits", 1000, "cnn_dropout", LATE, "momentum", 0.01, noise=0.5, test=None),
    _slot("digits", 1000, "mlp_batchnorm", EARLY, "sgd", 0.05, noise=0.25, test=None),
    _slot("digits", 700, "mlp", VERY_LATE, "sgd", 0.05, noise=0.5, test=None),
    _slot("breastmnist", 600, "cnn", EARLY, "adam", 0.001, test=None),
    _slot("breastmnist", 600, "mlp", LATE, "momentum", 0.002, test=None),
    _slot("breastmnist", 400, "cnn_batchnorm", VERY_EARLY, "momentum", 0.01, test=None),
    _slot("breastmnist", 600, "lenet", LATE, "adam", 0.0005, noise=0.2, test=None),
    _slot("retinamnist", 1200, "cnn", EARLY, "adam", 0.0005, test=None),
    _slot("retinamnist", 1200, "mlp", LATE, "sgd", 0.02, test=None),
    _slot("retinamnist", 800, "cnn_batchnorm", VERY_EARLY, "momentum", 0.01, test=None),
    _slot("retinamnist", 1200, "cnn_dropout", EARLY, "adam", 0.001, test=None, augment=True),
    # Digits
    _slot("mnist5k", 1000, "fully_connected", LATE, "sgd", 0.05, noise=0.5, batch=64),
    _slot("mnist5k", 500, "cnn", VERY_EARLY, "adam", 0.002, noise=0.25),
    _slot("mnist5k", 300, "mlp", EARLY, "adam", 0.001),
    _slot("mnist5k", 1000, "mlp_dropout", VERY_LATE, "sgd", 0.05, noise=0.5),
    _slot("mnist5k", 500, "alexnet*0.25", EARLY, "momentum", 0.01, noise=0.25, init="he_normal"),
    _slot("mnist5k", 256, "alexnet", EARLY, "sgd", 0.03, test=500, init="he_normal"),
    _slot("mnist5k", 256, "alexnet", VERY_EARLY, "momentum", 0.005, noise=0.25, test=500, init="he_normal"),
    # Photographs
    _slot("cifar10", 1000, "cnn", EARLY, "momentum", 0.01),
    _slot("cifar10", 1000, "cnn_batchnorm", VERY_EARLY, "adam", 0.001, noise=0.25),
    _slot("cifar10", 1000, "fully_connected", LATE, "sgd", 0.05, batch=64),
    _slot("cifar10", 600, "vgg8", VERY_EARLY, "momentum", 0.01, test=500, init="he_normal"),
    _slot("cifar10", 800, "resnet8", EARLY, "momentum", 0.02, augment=True),
    _slot("cifar10", 1000, "vgg8*0.25", VERY_EARLY, "sgd", 0.05, noise=0.25, init="he_normal"),
    _slot("cifar10", 1000, "cnn_dropout", EARLY, "adam", 0.001, augment=True),
    _slot("cifar100", 3000, "cnn", VERY_EARLY, "adam", 0.001, batch=64),
    _slot("cifar100", 3000, "cnn_batchnorm", EARLY, "sgd", 0.05, batch=64),
    _slot("cifar100", 4000, "cnn_dropout*2", EARLY, "adam", 0.001, batch=64),
    # Added after the first trials: the slots above with a very early best epoch stayed empty, since few steps per epoch
    # need a rate at which the test error jumps. These have more samples and smaller batches.
    _slot("letter", 6000, "mlp", VERY_EARLY, "momentum", 0.02, noise=0.25, batch=16, test=2000),
    _slot("spambase", 2600, "mlp", VERY_EARLY, "adam", 0.001, noise=0.4, batch=16, test=None),
    _slot("wine_quality", 2898, "mlp", VERY_EARLY, "adam", 0.002, batch=16, test=None),
    _slot("breast_cancer", 455, "mlp", VERY_EARLY, "adam", 0.002, noise=0.3, batch=8, test=None),
    _slot("sms_spam", 3000, "mlp*0.25", VERY_EARLY, "adam", 0.001, noise=0.3, batch=16, test=None),
    _slot("digits", 1400, "mlp", VERY_EARLY, "adam", 0.002, noise=0.5, batch=8, test=None),
    _slot("mnist5k", 3000, "mlp", VERY_EARLY, "adam", 0.0005, noise=0.25, batch=16),
    _slot("mnist5k", 2000, "mlp", VERY_EARLY, "adamw", 0.001, batch=8, weight_decay=0.01),
    _slot("cifar10", 3000, "fully_connected*0.5", VERY_EARLY, "adam", 0.0005, batch=16),
    _slot("letter", 8000, "mlp_batchnorm", EARLY, "adam", 0.001, noise=0.5, batch=64, test=2000),
    _slot("spambase", 2600, "mlp_dropout", LATE, "momentum", 0.002, noise=0.3, batch=32, test=None),
    _slot("retinamnist", 1200, "mlp_dropout", LATE, "adam", 0.0002, test=None),
    # Added after all of these trials: the deep networks above learn, but are best later than their ranges say.
    _slot("mnist5k", 500, "alexnet*0.25", LATE, "momentum", 0.009, noise=0.25, init="he_normal"),
    _slot("mnist5k", 256, "alexnet", LATE, "momentum", 0.005, noise=0.25, test=500, init="he_normal"),
    _slot("cifar10", 600, "vgg8", EARLY, "momentum", 0.01, test=500, init="he_normal"),
)

SLOTS: tuple[Slot, ...] = tuple(replace(slot, horizon=3 + number % 3) for number, slot in enumerate(_SLOTS))
"""The slots, in no particular order, with horizons of three, four and five times the best epoch in turn."""


def full_runs(spec: RunSpec) -> list[RunSpec]:
    """Return the runs of a setting on all the data: they record signals and detailed readings."""
    return [spec.with_(seed=seed, signals=SIGNALS, detailed_readings=READINGS) for seed in SEEDS]


def fold_runs(spec: RunSpec) -> list[RunSpec]:
    """Return the runs that leave out one fold each, for cross-validation; fold 0 is also the hold-out."""
    bare = spec.with_(signals=())
    return [bare.with_(seed=seed, fold=fold, folds=FOLDS) for seed in SEEDS for fold in range(FOLDS)]
