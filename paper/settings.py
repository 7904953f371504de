"""The settings of the paper's experiments in two profiles.

`paper` is the setting of the paper: full width, all samples, 5 seeds. What the paper does not state is chosen here:
numbers of epochs, and learning rates of optimizers other than SGD (torch's defaults). Some have as many epochs as two
cores can train: with limited CIFAR-10 and MNIST twice the last stop that the paper prints, 100 and 300 for fully
connected networks, 60 for noisy MNIST, which has 5,120 samples instead of 60,000. The others have up to
500, the default of its code. Run so far: limited MNIST, and one seed of limited CIFAR-10, of noisy MNIST and of fully
connected networks on MNIST and CIFAR-10. Runs with few samples are tested on the first 2,000 test images, since
testing on 10,000 would take most of an epoch; samples of CIFAR-10 are drawn from the first 12,800 of its training
images.

`laptop` asks the same question at a size that two cores can run: smaller networks, fewer samples and epochs, 3 seeds (5
of settings whose runs take less than a minute), the first 2,000 test images of CIFAR instead of 10,000 (`paper.data`),
and the 5,000 images of `mnist5k`, 1,000 of them for testing. The settings on CIFAR are chosen by the rule in
`paper.choice`, which reads no signal; sweeps over sizes and widths end at a training loss of 0.01, as in the paper, or
at the last epoch, which narrow networks and those with augmented data reach first. Those on MNIST, and batch sizes,
belong to a first choice, which looked only at the seconds per epoch and at the training error; their networks learn,
and they keep it: learning rates of 0.01 / scale, because the outputs of a narrow network change less for the same step,
for AlexNet with batches of 32 as in the paper's limited MNIST setting, and of 0.1 for fully connected networks. The
item `settings` says which of the networks learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from heldin.lab.curves import setting_of
from heldin.lab.spec import RunSpec
from paper.choice import RATES, chosen
from paper.data import CIFAR10, MNIST
from paper.network_names import scaled_title

PROFILES = ("laptop", "paper")
SEEDS = {"laptop": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}
SHORT_RUN_SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the laptop profile where a run takes less than a minute."""

HERE = " (here "  # before the network of a run, in titles of settings for which the paper has another one

DISPARITY = "gradient_disparity"
MAIN_SIGNALS = (
    "gradient_disparity",
    "gradient_disparity@fixed",
    "gradient_disparity[rescale=std_detached]",
    "gradient_disparity[rescale=none]",
    "gradient_variance",
    "inner_product",
    "sign",
    "cosine",
    "label_wave",
)
"""What runs on all the data measure; two backward passes per batch are enough for all of them."""

ALL_SIGNALS = (*MAIN_SIGNALS, "evidence_based", "gsnr", "class_alignment", "optimization_variance", "gwa")
"""All signals of table RW, and later ones."""

BATCH_COUNTS = (2, 5, 10, 20)
"""The numbers s of batches that disparity is averaged over."""

BATCH_COUNT_SIGNALS = (*ALL_SIGNALS, *(f"{DISPARITY}@s={num}" for num in BATCH_COUNTS if num != 5))


@dataclass(frozen=True, eq=False)
class Setting:
    """One setting in both profiles.

    Attributes:
        key: Its name in the keys of claims.
        title: Its name in the paper.
        laptop: The spec of the laptop profile, or None. Seed, fold and signals are set by `full` and `folded`.
        paper: The spec of the paper profile, or None.
        folds: The number of folds by profile; empty if there is no cross-validation.
        signals: The signals of runs on all the data.
        seconds: Seconds per epoch of the laptop profile, of a run on all the data and of a run on all folds but one,
            measured on one core of a busy machine.
        paper_signals: The signals in the paper profile, if they are fewer.
        laptop_seeds: The seeds of the laptop profile.
    """

    key: str
    title: str
    laptop: RunSpec | None
    paper: RunSpec | None
    folds: dict[str, int] = field(default_factory=dict)
    signals: tuple[str, ...] = MAIN_SIGNALS
    seconds: tuple[float, float] = (1.0, 1.0)
    paper_signals: tuple[str, ...] = ()
    laptop_seeds: tuple[int, ...] = SEEDS["laptop"]

    def seeds(self, profile: str) -> tuple[int, ...]:
        """Return the seeds of a profile."""
        return self.laptop_seeds if profile == "laptop" else SEEDS[profile]

    def title_for(self, spec: RunSpec) -> str:
        """Return the title, and the network of a run in parentheses if the paper has another one."""
        if self.paper is None or (spec.model, spec.scale) == (self.paper.model, self.paper.scale):
            return self.title
        return f"{self.title}{HERE}{scaled_title(spec)})"

    def title_in(self, profile: str) -> str:
        """Return the same for the runs of a profile."""
        spec = self.base(profile)
        return self.title if spec is None else self.title_for(spec)

    def base(self, profile: str) -> RunSpec | None:
        """Return the spec of a profile, with seed 0, or None."""
        return self.laptop if profile == "laptop" else self.paper

    def full(self, profile: str, seeds: Sequence[int] | None = None) -> list[RunSpec]:
        """Return the runs on all the data."""
        base, chosen = self.base(profile), self.seeds(profile) if seeds is None else seeds
        signals = self.paper_signals if profile == "paper" and self.paper_signals else self.signals
        return [] if base is None else [base.with_(seed=seed, signals=signals) for seed in chosen]

    def folded(self, profile: str, seeds: Sequence[int] | None = None) -> list[RunSpec]:
        """Return the runs that leave out one fold each. They record validation metrics and no signals."""
        base, chosen = self.base(profile), self.seeds(profile) if seeds is None else seeds
        if base is None or profile not in self.folds:
            return []
        num, bare = self.folds[profile], base.with_(signals=())
        return [bare.with_(seed=seed, fold=fold, folds=num) for seed in chosen for fold in range(num)]

    def specs(self, profile: str, seeds: Sequence[int] | None = None) -> list[RunSpec]:
        """Return all runs, seed by seed."""
        chosen = self.seeds(profile) if seeds is None else seeds
        return [spec for seed in chosen for spec in (*self.full(profile, [seed]), *self.folded(profile, [seed]))]


_RATE = 0.01  # of the paper; divided by the scale of a convolutional network in the laptop profile
_FC_RATE = 0.1
FIVE_FOLDS = {"laptop": 5, "paper": 5}
TEN_FOLDS = {"laptop": 10, "paper": 10}

_MNIST = RunSpec(dataset="mnist", model="alexnet", init="he_normal", epochs=200)
_DIGITS = RunSpec(
    dataset="mnist5k",
    num_samples=2000,
    model="alexnet",
    scale=0.25,
    init="he_normal",
    learning_rate=_RATE / 0.25,
    batch_size=32,
    epochs=50,
)
_SMALL_VGG = chosen("CIFAR-10, VGG").with_(until_loss=0.01)  # until the loss at which the paper ends its sweeps
_SMALL_RESNET = chosen("CIFAR-10, ResNet-18").with_(until_loss=0.01)
_SMALL_FC = chosen("CIFAR-10, fully connected")

LIMITED_CIFAR100 = Setting(
    "c100_r34",
    "CIFAR-100, ResNet-34, limited",
    chosen("CIFAR-100"),
    RunSpec(dataset="cifar100", num_samples=1280, model="resnet34", init="xavier_uniform", epochs=500),
    FIVE_FOLDS,
    seconds=(8.0, 4.5),
)
LIMITED_CIFAR10 = Setting(
    "c10_vgg13",
    "CIFAR-10, VGG-13, limited",
    chosen("CIFAR-10, VGG"),
    RunSpec(dataset=CIFAR10, num_samples=1280, model="vgg13", init="he_normal", epochs=60),
    FIVE_FOLDS,
    seconds=(5.0, 2.5),
)
LIMITED_MNIST = Setting(
    "mnist_alexnet",
    "MNIST, AlexNet, limited",
    _DIGITS.with_(num_samples=256, epochs=120),
    _MNIST.with_(dataset=MNIST, num_samples=256, batch_size=32, epochs=80),
    FIVE_FOLDS,
    seconds=(0.47, 0.23),
    laptop_seeds=SHORT_RUN_SEEDS,
)
NOISY_CIFAR100_18 = Setting(
    "c100_r18_noisy",
    "CIFAR-100, ResNet-18, noisy",
    None,
    RunSpec(dataset="cifar100", num_samples=1280, model="resnet18", init="xavier_uniform", label_noise=0.5, epochs=200),
    {"paper": 10},
)
NOISY_CIFAR100_34 = Setting(
    "c100_r34_noisy",
    "CIFAR-100, ResNet-34, noisy",
    None,
    RunSpec(dataset="cifar100", model="resnet34", init="he_normal", label_noise=0.5, epochs=100),
    {"paper": 10},
)
NOISY_CIFAR10 = Setting(
    "c10_vgg13_noisy",
    "CIFAR-10, VGG-13, noisy",
    chosen("CIFAR-10, VGG, 50 % random"),
    RunSpec(dataset="cifar10", model="vgg13", init="he_normal", label_noise=0.5, epochs=100),
    {"laptop": 5, "paper": 10},
    seconds=(11.0, 6.5),
)
NOISY_MNIST = Setting(
    "mnist_alexnet_noisy",
    "MNIST, AlexNet, noisy",
    _DIGITS.with_(label_noise=0.5),
    _MNIST.with_(dataset=MNIST, num_samples=5120, label_noise=0.5, epochs=60),
    TEN_FOLDS,
    ALL_SIGNALS,
    seconds=(2.3, 1.0),
    paper_signals=MAIN_SIGNALS,
)
LIMITED = (LIMITED_CIFAR100, LIMITED_CIFAR10, LIMITED_MNIST)
NOISY = (NOISY_CIFAR100_18, NOISY_CIFAR100_34, NOISY_CIFAR10, NOISY_MNIST)
KFOLD_SETTINGS = (*LIMITED, *NOISY)
"""The seven settings of the paper's comparison with k-fold cross-validation."""

RELATED_MNIST = Setting(
    "rw_a",
    "MNIST, AlexNet",
    _DIGITS,
    _MNIST.with_(num_samples=12800, until_loss=0.01),
    FIVE_FOLDS,
    ALL_SIGNALS,
    seconds=(2.3, 0.9),
)
RELATED_MNIST_NOISY = Setting(
    "rw_b",
    "MNIST, AlexNet, 50 % random",
    NOISY_MNIST.laptop,  # the same runs as in the comparison with k-fold, with its ten folds
    _MNIST.with_(num_samples=12800, label_noise=0.5, until_loss=0.01),
    {"laptop": 10, "paper": 5},
    ALL_SIGNALS,
    seconds=NOISY_MNIST.seconds,
)
_RESNET = RunSpec(
    dataset="cifar10", num_samples=12800, model="resnet18", init="xavier_uniform", epochs=200, until_loss=0.01
)
RELATED_CIFAR10 = Setting(
    "rw_c",
    "CIFAR-10, ResNet-18",
    chosen("CIFAR-10, ResNet-18"),
    _RESNET,
    FIVE_FOLDS,
    BATCH_COUNT_SIGNALS,
    seconds=(15.0, 6.0),
)
RELATED_CIFAR10_NOISY = Setting(
    "rw_d",
    "CIFAR-10, ResNet-18, 50 % random",
    chosen("CIFAR-10, ResNet-18, 50 % random"),
    _RESNET.with_(label_noise=0.5),
    FIVE_FOLDS,
    ALL_SIGNALS,
    seconds=(12.0, 7.0),
)
RELATED = (RELATED_MNIST, RELATED_MNIST_NOISY, RELATED_CIFAR10, RELATED_CIFAR10_NOISY)
"""Settings (a) to (d) of table RW."""


def _without_folds(
    key: str, title: str, laptop: RunSpec | None, paper: RunSpec, seconds: float, **more: object
) -> Setting:
    """Return a setting without folds."""
    return Setting(key, title, laptop, paper, seconds=(seconds, 0.0), **more)


def _at_profile(profile: str, setting: Setting) -> Setting:
    """Return a setting as a point of a sweep, without folds and in one profile only."""
    return replace(setting, **{"paper" if profile == "laptop" else "laptop": None}, folds={})


LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


def _noise(key: str, title: str, laptop: RunSpec | None, paper: RunSpec, seconds: float) -> dict[float, Setting]:
    """Return a setting at every level of label noise."""
    return {
        level: _without_folds(
            f"{key}_{level:.0%}",
            f"{title}, {level:.0%} random",
            None if laptop is None else laptop.with_(label_noise=level),
            paper.with_(label_noise=level),
            seconds,
        )
        for level in LEVELS
    }


NOISE_MNIST = {
    **_noise("mnist_noise", "MNIST, AlexNet", _DIGITS, _MNIST.with_(num_samples=12800, until_loss=0.01), 1.2),
    0.0: RELATED_MNIST,
    0.5: RELATED_MNIST_NOISY,
}
_NOISY_RESNET = chosen("CIFAR-10, ResNet-18, 50 % random")
NOISE_CIFAR10 = {
    **_noise("c10_noise", "CIFAR-10, ResNet-18", _NOISY_RESNET, _RESNET, 10.0),
    0.0: replace(RELATED_CIFAR10, laptop=_NOISY_RESNET.with_(label_noise=0.0), folds={}),
    0.5: RELATED_CIFAR10_NOISY,
}
"""In the laptop profile all levels have the network of 50 % random labels, so 0 % is not `RELATED_CIFAR10`."""

NOISE_FC_MNIST = _noise(
    "fc_mnist",
    "MNIST, fully connected",
    RunSpec(dataset="mnist5k", init="he_normal", learning_rate=_FC_RATE, epochs=80),
    RunSpec(dataset="mnist", init="he_normal", epochs=100),
    1.1,
)
NOISE_FC_CIFAR10 = _noise(
    "fc_cifar10",
    "CIFAR-10, fully connected",
    _SMALL_FC,
    RunSpec(dataset=CIFAR10, num_samples=12800, init="xavier_uniform", epochs=300),
    0.8,
)
NOISE_CIFAR100 = _noise(
    "c100_noise",
    "CIFAR-100, ResNet-18",
    None,
    RunSpec(dataset="cifar100", model="resnet18", init="xavier_uniform", epochs=200),
    0.0,
)

SIZES = {"laptop": (640, 1280, 2560), "paper": (2560, 6400, 12800, 25600, 50000)}


def _sizes(
    key: str,
    title: str,
    laptop: RunSpec,
    paper: RunSpec,
    per_sample: float,
    *,
    sizes: dict[str, tuple[int, ...]] = SIZES,
) -> dict[int, Setting]:
    """Return a setting at several sizes of the training set. A size belongs to one profile or to both."""
    found = {}
    for size in sorted({*sizes["laptop"], *sizes["paper"]}):
        small, large = (size in sizes[profile] for profile in PROFILES)
        found[size] = _without_folds(
            f"{key}_{size}",
            f"{title}, {size:,} samples",
            laptop.with_(num_samples=size) if small else None,
            paper.with_(num_samples=size) if large else None,
            1.3 + per_sample * size,
        )
    return found


SIZES_RESNET = {
    **_sizes("c10_size", "CIFAR-10, ResNet-18", _SMALL_RESNET, _RESNET, 0.002),
    12800: _at_profile("paper", RELATED_CIFAR10),
}
SIZES_RESNET_AUGMENTED = _sizes(
    "c10_size_da",
    "CIFAR-10, ResNet-18, augmented",
    _SMALL_RESNET.with_(augment=True),
    _RESNET.with_(augment=True),
    0.002,
)
_VGG = RunSpec(dataset="cifar10", num_samples=12800, epochs=200, until_loss=0.01)
SIZES_VGG = _sizes("c10_size_vgg16", "CIFAR-10, VGG-16", _SMALL_VGG, _VGG.with_(model="vgg16"), 0.0007)
SIZES_MSE = _sizes(
    "c10_size_mse",
    "CIFAR-10, VGG-16, squared error",
    chosen("CIFAR-10, VGG, squared error").with_(until_loss=0.01),
    _VGG.with_(model="vgg16", loss="mse"),
    0.0007,
)
SIZES_MNIST = {
    **_sizes(
        "mnist_size",
        "MNIST, AlexNet",
        _DIGITS,
        _MNIST.with_(until_loss=0.01),
        0.0005,
        sizes={"laptop": (500, 1000, 2000, 4000), "paper": SIZES["paper"]},
    ),
    2000: _at_profile("laptop", RELATED_MNIST),
    12800: _at_profile("paper", RELATED_MNIST),
}

_BATCHES = (32, 64, 128, 256, 512)
BATCHES_VGG = {
    size: _without_folds(
        f"c10_batch_{size}",
        f"CIFAR-10, VGG-11, batches of {size}",
        RunSpec(
            dataset=CIFAR10,
            num_samples=2560,
            model="vgg11",
            scale=0.125,
            learning_rate=_RATE / 0.125,
            batch_size=size,
            epochs=25,
            until_loss=0.01,
        ),
        _VGG.with_(model="vgg11", batch_size=size),
        3.0 + 0.0015 * size,
    )
    for size in _BATCHES
}
BATCHES_RESNET = {
    size: _without_folds(
        f"c10_r18_batch_{size}", f"CIFAR-10, ResNet-18, batches of {size}", None, _RESNET.with_(batch_size=size), 0
    )
    for size in _BATCHES
} | {128: _at_profile("paper", RELATED_CIFAR10)}
BATCHES_CIFAR100 = {
    size: _without_folds(
        f"c100_r18_batch_{size}",
        f"CIFAR-100, ResNet-18, batches of {size}",
        None,
        _RESNET.with_(dataset="cifar100", batch_size=size),
        0,
    )
    for size in (16, 32, 64, 128, 256)
}


def _widths(
    key: str, title: str, laptop: RunSpec, paper: RunSpec, seconds: dict[float, float], full: tuple[float, ...]
) -> dict[float, Setting]:
    """Return a setting at several widths."""
    return {
        scale: _without_folds(
            f"{key}_{scale:g}",
            f"{title}, scale {scale:g}",
            laptop.with_(scale=scale) if scale in seconds else None,
            paper.with_(scale=scale) if scale in full else None,
            seconds.get(scale, 0.0),
        )
        for scale in sorted({*seconds, *full})
    }


_SCALES = (0.25, 0.5, 1.0, 2.0)
WIDTHS_RESNET = {
    **_widths(
        "c10_width_r18",
        "CIFAR-10, ResNet-18",
        _SMALL_RESNET,
        _RESNET,
        {0.0625: 4.1, 0.125: 6.5, 0.25: 12.5},
        _SCALES,
    ),
    0.125: _at_profile("laptop", SIZES_RESNET[2560]),
    1.0: _at_profile("paper", RELATED_CIFAR10),
}
WIDTHS_VGG = _widths(
    "c10_width_vgg11",
    "CIFAR-10, VGG-11",
    _SMALL_VGG,
    _VGG.with_(model="vgg11"),
    {0.125: 1.1, 0.25: 2.0, 0.5: 5.0},
    _SCALES,
)
WIDTHS_FC = _widths(
    "c10_width_fc",
    "CIFAR-10, fully connected",
    _SMALL_FC.with_(until_loss=0.01),
    _VGG.with_(model="fully_connected", init="xavier_uniform", epochs=500),
    {0.1: 0.2, 0.3: 0.3, 1.0: 0.8},
    _SCALES,
)


def _optimizer(letter: str, model: str, name: str) -> Setting:
    laptop = chosen(f"CIFAR-10, VGG, {name}") if letter in "aefgh" else None
    paper = _VGG.with_(model=model, optimizer=name, learning_rate=RATES[name][0])
    return _without_folds(f"opt_{letter}", f"CIFAR-10, {model.replace('vgg', 'VGG-')}, {name}", laptop, paper, 2.1)


OPTIMIZERS = {
    letter: _optimizer(letter, model, name)
    for letter, model, name in (
        ("a", "vgg19", "momentum"),
        ("b", "vgg19", "adagrad"),
        ("c", "vgg19", "rmsprop"),
        ("d", "vgg19", "adam"),
        ("e", "vgg11", "adagrad"),
        ("f", "vgg11", "adadelta"),
        ("g", "vgg11", "rmsprop"),
        ("h", "vgg11", "adam"),
    )
}
"""In the laptop profile each optimizer is run once."""

RESCALINGS = ("gradient_disparity", "gradient_disparity[rescale=minmax]", "gradient_disparity[rescale=grad_std]")
RESCALED = _without_folds(
    "rescaled",
    "CIFAR-10, VGG-11",
    LIMITED_CIFAR10.laptop,
    _VGG.with_(model="vgg11"),
    2.1,
    signals=(*MAIN_SIGNALS, *RESCALINGS[1:]),
)


VGG16 = _without_folds("c10_vgg16", "CIFAR-10, VGG-16", LIMITED_CIFAR10.laptop, _VGG.with_(model="vgg16"), 5.0)
VGG16_NOISY = _without_folds(
    "c10_vgg16_noisy",
    "CIFAR-10, VGG-16, 50 % random",
    NOISY_CIFAR10.laptop,
    _VGG.with_(model="vgg16", label_noise=0.5),
    11.0,
)
VGG19 = _without_folds("c10_vgg19", "CIFAR-10, VGG-19", None, _VGG.with_(model="vgg19"), 0.0)
VGG19_NOISY = _without_folds(
    "c10_vgg19_noisy", "CIFAR-10, VGG-19, 50 % random", None, _VGG.with_(model="vgg19", label_noise=0.5), 0.0
)
"""In the laptop profile VGG-16 is the VGG of the comparison with k-fold, the same runs; VGG-19 is not run."""

_EXAMS = RunSpec(model="mrnet", learning_rate=1e-4, batch_size=1, epochs=100)
_POOLED = ("gradient_disparity[rescale=pooled_std]",)
_STAND_IN = _DIGITS.with_(dataset="breastmnist", num_samples=None, epochs=100)
TASKS = {
    "standin": Setting(
        "mrnet_standin",
        "BreastMNIST, AlexNet",
        _STAND_IN,
        None,
        FIVE_FOLDS,
        seconds=(0.55, 0.3),
        laptop_seeds=SHORT_RUN_SEEDS,
    ),
    **{
        task: Setting(
            f"mrnet_{task}", f"MRNet, {task}", None, _EXAMS.with_(dataset=f"mrnet:{task}"), FIVE_FOLDS, _POOLED
        )
        for task in ("abnormal", "acl", "meniscus")
    },
}
"""MRNet requires registration; in the laptop profile BreastMNIST is used instead."""


def all_runs(settings: Iterable[Setting]) -> Callable[[str], list[RunSpec]]:
    """Return a function from a profile to all runs of these settings."""
    listed = list(settings)
    return lambda profile: [spec for setting in listed for spec in setting.specs(profile)]


def full_runs(settings: Iterable[Setting]) -> Callable[[str], list[RunSpec]]:
    """Return a function from a profile to the runs of these settings on all the data."""
    listed = list(settings)
    return lambda profile: [spec for setting in listed for spec in setting.full(profile)]


def seconds_of(spec: RunSpec) -> float:
    """Estimate how long a run of the laptop profile takes on one core; 0 if that is not known."""
    return spec.epochs * _SECONDS.get(setting_of(spec).canonical, (0.0, 0.0))[0 if spec.fold is None else 1]


def _all_settings() -> list[Setting]:
    found: list[Setting] = []
    for value in list(globals().values()):
        listed = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        found += [each for each in listed if isinstance(each, Setting)]
    return found


_SECONDS: dict[str, tuple[float, float]] = {}
for _each in sorted(_all_settings(), key=lambda setting: setting.seconds):  # the longest, if settings share runs
    if _each.laptop is not None:
        _SECONDS[setting_of(_each.laptop).canonical] = _each.seconds
