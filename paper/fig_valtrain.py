"""Figure valtrain: disparity between training and validation batches."""

from heldin.lab.compare import pearson
from heldin.lab.curves import Estimate
from heldin.lab.reproducing import ANY, Built, Item, Runs
from heldin.lab.spec import RunSpec
from paper.data import CIFAR10, CIFAR100
from paper.displays import PairsDisplay
from paper.settings import SEEDS

TRAIN_TRAIN, TRAIN_VALIDATION = "gradient_disparity", "train_val_disparity"

NETWORKS = {  # what is trained -> seconds of an epoch with 1,280 samples
    RunSpec(dataset="mnist5k", init="he_normal", learning_rate=0.1): 0.7,
    RunSpec(dataset="mnist5k", model="alexnet", scale=0.25, init="he_normal", learning_rate=0.04, batch_size=32): 1.3,
    RunSpec(dataset=CIFAR10, model="vgg11", scale=0.125, learning_rate=0.08): 2.6,
    RunSpec(dataset=CIFAR10, model="resnet18", scale=0.0625, learning_rate=0.16): 3.3,
    RunSpec(dataset=CIFAR100, model="resnet18", scale=0.0625, learning_rate=0.16, batch_size=32): 3.3,
}
FULL = (
    RunSpec(dataset="mnist", init="he_normal"),
    RunSpec(dataset="mnist", model="alexnet", init="he_normal"),
    RunSpec(dataset="cifar10", model="vgg11"),
    RunSpec(dataset="cifar10", model="vgg16"),
    RunSpec(dataset="cifar10", model="resnet18"),
    RunSpec(dataset="cifar100", model="resnet18"),
)
SAMPLES = {"laptop": (640, 1280), "paper": (1280, 6400, 12800)}
NOISE = {"laptop": (0.0, 0.5), "paper": (0.0, 0.5)}
EPOCHS = {"laptop": 10, "paper": 50}


def specs(profile: str) -> list[RunSpec]:
    """Every network, size, noise and seed, each without one fifth of the data: 60 runs, and 180."""
    both = {"fold": 0, "folds": 5, "epochs": EPOCHS[profile], "signals": (TRAIN_TRAIN, TRAIN_VALIDATION)}
    return [
        base.with_(num_samples=num, label_noise=noise, seed=seed, batch_size=min(base.batch_size, 64), **both)
        for base in (NETWORKS if profile == "laptop" else FULL)
        for num in SAMPLES[profile]
        for noise in NOISE[profile]
        for seed in SEEDS[profile]
    ]


def build(runs: Runs) -> Built:
    """One point a run, at its last epoch; and all epochs of all runs."""
    wanted = {spec.id for spec in specs(runs.profile)}
    records = [record for record in runs.records if record.id in wanted]
    if len(records) < 2:
        return Built()
    ends = [(record.curve(TRAIN_TRAIN)[-1], record.curve(TRAIN_VALIDATION)[-1]) for record in records]
    every = [pair for r in records for pair in zip(r.curve(TRAIN_TRAIN), r.curve(TRAIN_VALIDATION), strict=True)]
    numbers = {
        "rho": {ANY: Estimate(pearson(*map(list, zip(*ends, strict=True))), None, len(records))},
        "rho.every": {ANY: Estimate(pearson(*map(list, zip(*every, strict=True))), None, len(every))},
    }
    points: dict[str, list[tuple[float, float]]] = {}
    for record, pair in zip(records, ends, strict=True):
        if None not in pair:
            points.setdefault(f"{record.spec.dataset.removeprefix('npz:')}, {record.spec.model}", []).append(pair)
    names = "disparity, train-train", "disparity, train-validation"
    return Built(figures={"valtrain": PairsDisplay(points, names)} if points else {}, numbers=numbers)


def seconds(spec: RunSpec) -> float:
    """How long a run takes on one core, as estimated."""
    alike = [
        each for network, each in NETWORKS.items() if (network.dataset, network.model) == (spec.dataset, spec.model)
    ]
    return spec.epochs * (alike[0] if alike else 0.0) * ((spec.num_samples or 0) / 1280 + 0.3)


ITEM = Item(
    label="fig:valtrain",
    claim="Disparity between training batches goes with disparity between training and validation batches, so none "
    "have to be held out.",
    stage=4,
    specs=specs,
    build=build,
    differs="60 runs of 5 networks, 2 sizes, 2 levels of noise and 3 seeds instead of 220, each at its 10th epoch.",
    seconds=seconds,
)
