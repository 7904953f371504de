"""Training with heldin and training without it are the same training, to the last bit.

Every row of the tables below is trained twice from one seed: once on its own, and once with `EarlyStopping.step` and
`heldin.measure` after each epoch and twice in the middle of one: between the forward pass and `backward`, and between
`backward` and the optimizer's step. At the end the two are compared in everything a training run consists of; around
each measurement, so is the run with itself.
"""

import copy
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    ChainDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import heldin
from heldin.errors import BatchesError, HeldinWarning, NotFiniteError

EPOCHS = 2
AFTER_FORWARD, AFTER_BACKWARD = (1, 1), (1, 2)
WORDS, CLASSES = 11, 3
PLAIN = (bool, int, float, str, bytes, type(None))

forking = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@dataclass
class Run:
    """What is trained, on what; and what else is to stay as it is, under a name."""

    model: nn.Module
    loader: Iterable[Any]
    loss_fn: Callable[[Tensor, Tensor], Tensor] = field(default_factory=nn.CrossEntropyLoss)
    optimizer: torch.optim.Optimizer | None = None
    accumulate: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.optimizer is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def modules(self) -> dict[str, nn.Module]:
        found = {f"model.{name}": module for name, module in self.model.named_modules()}
        if isinstance(self.loss_fn, nn.Module):
            found |= {f"loss.{name}": module for name, module in self.loss_fn.named_modules()}
        return found

    def parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters(remove_duplicate=False))


def everything(run: Run) -> dict[str, Any]:
    """All that a training run consists of, as copies."""
    state = {
        "parameters": run.parameters(),
        "gradients": {name: parameter.grad for name, parameter in run.parameters().items()},
        "requires_grad": {name: parameter.requires_grad for name, parameter in run.parameters().items()},
        "buffers": {name: dict(module._buffers) for name, module in run.modules().items()},
        "attributes": {name: attributes(module) for name, module in run.modules().items()},
        "optimizer": run.optimizer.state_dict(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "loader": attributes(run.loader) if hasattr(run.loader, "__dict__") else run.loader,
        **{
            name: attributes(getattr(run.loader, name))
            for name in ("dataset", "sampler", "batch_sampler")
            if hasattr(getattr(run.loader, name, None), "__dict__")
        },
        "watched": run.watched,
    }
    return frozen(state)


def attributes(thing: object) -> dict[str, Any]:
    """Its attributes, except those in which a module keeps what is looked at anyway (or what differs by nature)."""
    return {key: value for key, value in vars(thing).items() if not key.startswith("_") or key == "_iterator"}


def objects(run: Run) -> dict[str, int]:
    """Which objects a run is made of: the same ones before and after."""
    found = {name + ".grad": parameter.grad for name, parameter in run.parameters().items()}
    for name, parameter in run.parameters().items():
        found[name + ".hooks"] = parameter._backward_hooks
        found[name + ".post_hooks"] = parameter._post_accumulate_grad_hooks
    for name, module in run.modules().items():
        for key, value in {**vars(module), **module._parameters, **module._buffers}.items():
            found[f"{name}.{key}"] = value
    return {name: id(value) for name, value in found.items()}


def frozen(thing: Any) -> Any:
    """A copy that later changes do not reach, of things that can be compared."""
    if isinstance(thing, Tensor):
        return thing.detach().to_dense().clone()
    if isinstance(thing, np.ndarray):
        return thing.copy()
    if isinstance(thing, Mapping):
        return {key: frozen(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [frozen(value) for value in thing]
    if isinstance(thing, (torch.Generator, np.random.RandomState)):
        return frozen(thing.get_state())
    if isinstance(thing, np.random.Generator):
        return frozen(thing.bit_generator.state)
    if isinstance(thing, random.Random):
        return thing.getstate()
    return thing if isinstance(thing, PLAIN) else type(thing).__name__


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """The places in which two frozen things differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found for i, pair in enumerate(zip(one, other, strict=True)) for found in differences(*pair, f"{where}/{i}")
        ]
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [where]
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return [] if np.array_equal(one, other) else [where]
    return [] if type(one) is type(other) and one == other else [where]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small tensors are slower on several threads, much slower where others compute too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seed_everything() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


Measurement = Callable[[Run, heldin.EarlyStopping], None]


def step_and_measure(run: Run, stopper: heldin.EarlyStopping) -> None:
    """The stopper's step, and `measure` on batches that were kept aside."""
    taken = len(stopper.history)
    stopper.step(run.loader)
    assert len(stopper.history) == taken + 1
    batches = [(x.clone(), y.clone()) for x, y in run.watched["batches"][:3]]
    values = heldin.measure(run.model, run.loss_fn, batches, mode=run.options.get("mode", "train"))
    assert values["gradient_disparity"] > 0.0


def trained(start: Callable[[], Run], measurement: Measurement | None) -> dict[str, Any]:
    """Everything about a run after its training, with or without a measurement now and then."""
    seed_everything()
    run = start()
    run.watched["batches"] = []
    stopper = None
    if measurement is not None:
        stopper = heldin.EarlyStopping(run.model, run.loss_fn, **{"batches": 3, "patience": 2} | run.options)
    for epoch in range(EPOCHS):
        for number, (x, y) in enumerate(run.loader):
            run.watched["batches"].append((x.clone(), y.clone()))
            if number % run.accumulate == 0:
                run.optimizer.zero_grad()
            loss = run.loss_fn(run.model(x), y).mean()
            if measurement is not None and (epoch, number) == AFTER_FORWARD:
                take(measurement, run, stopper)
            loss.backward()
            if measurement is not None and (epoch, number) == AFTER_BACKWARD:
                take(measurement, run, stopper)
            if (number + 1) % run.accumulate == 0:
                run.optimizer.step()
        if measurement is not None:
            take(measurement, run, stopper)
    return everything(run)


def take(measurement: Measurement, run: Run, stopper: heldin.EarlyStopping) -> None:
    before, which = everything(run), objects(run)
    measurement(run, stopper)
    assert differences(before, everything(run)) == []
    assert differences(which, objects(run)) == []


def assert_same_training(start: Callable[[], Run], measurement: Measurement = step_and_measure) -> None:
    assert differences(trained(start, None), trained(start, measurement)) == []


def rows(table: Mapping[str, Any], open_: Mapping[str, str] | None = None) -> list[Any]:
    """The rows of a table; those in `open_` do not hold yet, for the reason given there."""
    marks = {name: [pytest.mark.xfail(reason=reason)] for name, reason in (open_ or {}).items()}
    return [pytest.param(row, id=name, marks=marks.get(name, [])) for name, row in table.items()]


def samples(num: int = 40) -> TensorDataset:
    return TensorDataset(torch.randn(num, 6), torch.randint(CLASSES, (num,)))


def shuffled(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(samples() if dataset is None else dataset, **{"batch_size": 8, "shuffle": True} | options)


def delicate() -> nn.Module:
    """A model that is moved by every forward pass and every random number."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES))


class AsWords(nn.Module):
    """Numbers -> word indices, so that one dataset serves all models."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul(10).long() % WORDS


def words(embedding: nn.Embedding) -> nn.Module:
    return nn.Sequential(AsWords(), embedding, nn.Flatten(), nn.Dropout(0.3), nn.Linear(6 * 4, CLASSES))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.reshape(-1, 3, 2))[0][:, -1])


class Tied(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4, **options)
        self.head = nn.Linear(4, WORDS)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(AsWords()(x)).mean(1))


class Counting(nn.Module):
    """Rebinds attributes and buffers, and writes into buffers, at each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.calls = 0
        self.last = torch.zeros(6)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("total", torch.zeros(6), persistent=False)
        self.register_buffer("cache", None)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.detach().mean(0)
        self.calls += 1
        self.last = mean
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.total += mean
        self.cache = self.total / self.calls
        return self.linear(x - self.mean + self.cache / 100 + self.last / 100)


class Collecting(nn.Module):
    """Keeps something of each forward pass in a list, and a statistic in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.collected = []
        self.statistic = torch.zeros(6)

    def forward(self, x: Tensor) -> Tensor:
        self.collected.append(float(x.mean()))
        self.statistic += x.mean(0)
        return self.linear(x + self.statistic / 100) * (1 + len(self.collected) / 1000)


class Taught(nn.Module):
    """Hides a second network from `modules()`, as one does who does not want it saved."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.teacher = nn.Linear(6, CLASSES), [nn.BatchNorm1d(6)]

    def forward(self, x: Tensor) -> Tensor:
        teacher = self.teacher[0]
        return self.linear(teacher(x) + teacher.running_mean)


NOISE = np.random.RandomState(5)


def noise() -> float:
    return NOISE.standard_normal()


class UsesNoiseOfTheFile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        NOISE.seed(5)
        self.linear = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x + noise())


class OwnNoise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.generator = torch.Generator().manual_seed(1)
        self.others = {"python": random.Random(1), "numpy": np.random.default_rng(1)}

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.generator)
        return self.linear(x + noise + self.others["python"].random() + self.others["numpy"].random())


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = delicate(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


class Following(nn.Module):
    """As MoCo: a second network that follows the first one, a little at each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.leader, self.follower = nn.Linear(6, CLASSES), nn.Linear(6, CLASSES).requires_grad_(False)

    @torch.no_grad()
    def follow(self) -> None:
        for ahead, behind in zip(self.leader.parameters(), self.follower.parameters(), strict=True):
            behind.mul_(0.9).add_(ahead, alpha=0.1)

    def forward(self, x: Tensor) -> Tensor:
        self.follow()
        return self.leader(x) + self.follower(x)


class FunctionalEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(5 * torch.randn(WORDS, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(AsWords()(x), self.table, max_norm=1.0).mean(1)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = delicate()

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.body, x, use_reentrant=False)


def with_frozen_layers() -> nn.Module:
    model = delicate()
    model[:2].requires_grad_(False)
    return model


def with_one_layer_in_evaluation() -> nn.Module:
    model = delicate()
    model[1].eval()
    return model


def wrapped_layer(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(wrap(nn.Linear(6, 8)), nn.ReLU(), nn.Dropout(0.3), wrap(nn.Linear(8, CLASSES)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "batchnorm": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)),
    "batchnorm with a cumulative mean": lambda: nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, CLASSES)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, CLASSES)),
    "spectral norm": lambda: wrapped_layer(nn.utils.parametrizations.spectral_norm),
    "spectral norm by hook": lambda: wrapped_layer(nn.utils.spectral_norm),
    "weight norm": lambda: wrapped_layer(nn.utils.parametrizations.weight_norm),
    "weight norm by hook": lambda: wrapped_layer(nn.utils.weight_norm),
    "lstm": Recurrent,
    "embedding": lambda: words(nn.Embedding(WORDS, 4)),
    "embedding with sparse gradients": lambda: words(nn.Embedding(WORDS, 4, sparse=True)),
    "embedding with max_norm": lambda: words(nn.Embedding(WORDS, 4, max_norm=1.0)),
    "tied weights": Tied,
    "frozen layers": with_frozen_layers,
    "parameters without gradient": Unused,
    "left in evaluation mode": lambda: delicate().eval(),
    "one layer in evaluation mode": with_one_layer_in_evaluation,
    "attributes and buffers rebound in forward": Counting,
    "generators of its own": OwnNoise,
    "checkpointed": Checkpointed,
    "float64": lambda: nn.Sequential(AsDouble(), delicate().double()),
    "tied weights with max_norm": lambda: Tied(max_norm=1.0),
    "list and tensor changed in place": Collecting,
    "teacher in a list": Taught,
    "noise of the file": UsesNoiseOfTheFile,
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))),
    "parameters written in forward": Following,
    "functional embedding with max_norm": FunctionalEmbedding,
}
MODELS_OPEN = {
    "parameters written in forward": "parameters are not copied, but for embeddings with max_norm",
    "functional embedding with max_norm": "only nn.Embedding and nn.EmbeddingBag are recognised",
}


class AsDouble(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.(weight|spectral)_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("create", rows(MODELS, MODELS_OPEN))
def test_models_train_as_if_they_were_not_measured(create):
    assert_same_training(lambda: Run(create(), shuffled()))


def with_gradient_hook(run: Run, calls: list[int]) -> None:
    def double(gradient: Tensor) -> Tensor:
        calls.append(1)
        return gradient * 2

    run.model[0].weight.register_hook(double)


def with_post_accumulate_hook(run: Run, calls: list[int]) -> None:
    inner = {p: torch.optim.Adam([p], lr=0.01) for p in run.model.parameters()}

    def update(parameter: Tensor) -> None:
        calls.append(1)
        inner[parameter].step()

    for parameter in run.model.parameters():
        parameter.register_post_accumulate_grad_hook(update)


def with_backward_hook(run: Run, calls: list[int]) -> None:
    def double(module: nn.Module, inputs: tuple[Tensor], outputs: tuple[Tensor]) -> tuple[Tensor]:
        calls.append(1)
        return (inputs[0] * 2,)

    run.model[4].register_full_backward_hook(double)


def with_backward_pre_hook(run: Run, calls: list[int]) -> None:
    def double(module: nn.Module, outputs: tuple[Tensor]) -> tuple[Tensor]:
        calls.append(1)
        return (outputs[0] * 2,)

    run.model[4].register_full_backward_pre_hook(double)


def with_hook_on_several(run: Run, calls: list[int]) -> None:
    torch.autograd.graph.register_multi_grad_hook(tuple(run.model.parameters()), lambda _: calls.append(1))


HOOKS = [
    with_gradient_hook,
    with_post_accumulate_hook,
    with_backward_hook,
    with_backward_pre_hook,
    with_hook_on_several,
]


@pytest.mark.parametrize("add", HOOKS, ids=lambda add: add.__name__.removeprefix("with_"))
def test_hooks_are_called_by_training_alone(add):
    def start() -> Run:
        run = Run(delicate(), shuffled(), watched={"calls": []})
        add(run, run.watched["calls"])
        return run

    assert trained(start, None)["watched"]["calls"] != []
    assert_same_training(start)


OPTIMIZERS = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.05),
    "SGD with momentum": functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": functools.partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW, foreach": functools.partial(torch.optim.AdamW, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("create", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_go_on_as_if_nothing_had_been_measured(create):
    def start() -> Run:
        model = delicate()
        return Run(model, shuffled(), optimizer=create(model.parameters()))

    assert_same_training(start)


def test_gradients_go_on_accumulating():
    waiting = []

    def measure_with_gradients_waiting(run: Run, stopper: heldin.EarlyStopping) -> None:
        waiting.append(all(parameter.grad is not None for parameter in run.model.parameters()))
        step_and_measure(run, stopper)

    assert_same_training(lambda: Run(delicate(), shuffled(), accumulate=3), measure_with_gradients_waiting)
    assert waiting == [True] * 4


OPTIONS = {
    "keep the lowest": {"keep": "lowest"},
    "evaluation mode": {"mode": "eval"},
    "fixed probes": {"probes": "fixed"},
    "several signals": {"signal": [heldin.GradientDisparity(rescale=how) for how in ("std", "minmax", "grad_std")]},
    "pooled losses": {"signal": heldin.GradientDisparity(rescale="pooled_std"), "pool": 4},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_option_of_the_stopper_touches_training(options):
    assert_same_training(lambda: Run(with_one_layer_in_evaluation(), shuffled(), options=options))


class Remembering(nn.Module):
    """One loss per sample, weighed by what has been seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.norm = nn.BatchNorm1d(CLASSES)
        self.calls = 0

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        self.seen += 1
        self.calls += 1
        return F.cross_entropy(self.norm(output), target, reduction="none") * (1 + 1 / self.seen)


class RememberingMean(Remembering):
    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        losses = super().forward(output, target)
        return losses if self.reduction == "none" else losses.mean()


LOSSES = {
    "with a reduction": lambda: nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(CLASSES)),
    "function": lambda: F.cross_entropy,
    "with a state": Remembering,
    "with a state and a reduction": RememberingMean,
}


@pytest.mark.parametrize("create", rows(LOSSES))
def test_losses_are_as_if_they_had_not_been_asked(create):
    assert_same_training(lambda: Run(delicate(), shuffled(), loss_fn=create()))


class SampleLosses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(self.norm(batch[0])), batch[1], reduction="none")


def test_sample_losses_that_are_a_module_are_as_if_they_had_not_been_asked():
    losses = SampleLosses()
    heldin.measure(delicate(), None, list(shuffled()), sample_losses=losses)
    assert losses.norm.num_batches_tracked == 0


class Augmented(Dataset):
    """Samples with noise of one kind."""

    def __init__(self, noise: Callable[["Augmented"], float], stream: object = None) -> None:
        self.inputs, self.targets = samples().tensors
        self.noise, self.stream = noise, stream

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index] + self.noise(self), self.targets[index]


class Rotating(Sampler):
    """Batches that start one sample later at each pass, in an order of its own."""

    def __init__(self, size: int = 40) -> None:
        self.size, self.passes, self.order = size, 0, random.Random(5)

    def __len__(self) -> int:
        return self.size // 8

    def __iter__(self) -> Iterator[list[int]]:
        self.passes += 1
        places = [(place + self.passes) % self.size for place in range(self.size)]
        batches = [places[start : start + 8] for start in range(0, self.size, 8)]
        self.order.shuffle(batches)
        yield from batches


class Restartable(IterableDataset):
    """A stream that starts again at each pass, in another order."""

    def __init__(self) -> None:
        self.samples, self.generator = list(samples()), torch.Generator().manual_seed(5)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.randperm(len(self.samples), generator=self.generator).tolist():
            yield self.samples[index]


class CountingEpochs(Restartable):
    """As `Restartable`; the order follows from the number of passes so far."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        self.generator.manual_seed(self.passes)
        return super().__iter__()


class ShufflingItsFiles(IterableDataset):
    """Shuffles a list in place at each pass."""

    def __init__(self) -> None:
        self.samples, self.files = list(samples()), list(range(40))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        random.shuffle(self.files)
        for index in self.files:
            yield self.samples[index]


class Around(IterableDataset):
    """A stream over another one."""

    def __init__(self, inner: Iterable[Any]) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        yield from self.inner


class ShufflingItsOrder:
    """Batches by hand, in an order that is shuffled in place."""

    def __init__(self, order: Any, shuffle: Callable[[Any], None]) -> None:
        self.inputs, self.targets = samples().tensors
        self.order, self.shuffle = order, shuffle

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.shuffle(self.order)
        for start in range(0, 40, 8):
            chosen = torch.as_tensor(self.order[start : start + 8])
            yield self.inputs[chosen], self.targets[chosen]


class Wrapped:
    """Holds what it reads from in a dict."""

    def __init__(self, inner: Iterable[Any]) -> None:
        self.inner = {"train": inner}

    def __iter__(self) -> Iterator[Any]:
        for x, y in self.inner["train"]:
            yield x + 0, y


def augmented_by_the_file() -> DataLoader[Any]:
    NOISE.seed(5)
    return shuffled(Augmented(lambda _: noise()))


class Batches:
    """An iterable of batches that is no loader: what people write themselves."""

    def __init__(self, **options: Any) -> None:
        self.inner = shuffled(**options)

    def __iter__(self) -> Iterator[list[Tensor]]:
        for x, y in self.inner:
            yield x + 0.1 * torch.randn(x.shape), y


class Noisy(DataLoader):
    """A loader with an `__iter__` of its own."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        for x, y in super().__iter__():
            yield [x + random.random(), y]


class RoundAndRound:
    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield from self.sampler


class Reusing(DataLoader):
    """As in timm and YOLO: one iterator for ever, over a batch sampler that never ends."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", RoundAndRound(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self) -> Iterator[list[Tensor]]:
        for _ in range(len(self.batch_sampler.sampler)):
            yield next(self.iterator)


def sampled(sampler: Callable[..., Any], *arguments: Any, **options: Any) -> DataLoader[Any]:
    return shuffled(shuffle=None, sampler=sampler(*arguments, **options))


def with_workers(**options: Any) -> DataLoader[Any]:
    return shuffled(Augmented(lambda _: torch.rand(()).item() + random.random()), num_workers=2, **options)


def prebatched() -> DataLoader[Any]:
    return DataLoader(list(shuffled(samples(80))), batch_size=None, shuffle=True)


DATA: dict[str, Callable[[], Iterable[Any]]] = {
    "shuffled": shuffled,
    "in order": lambda: shuffled(shuffle=False),
    "own generator": lambda: shuffled(generator=torch.Generator().manual_seed(5)),
    "own generator, global too": lambda: shuffled(generator=torch.default_generator),
    "drop_last": lambda: shuffled(samples(44), drop_last=True),
    "ragged last batch": lambda: shuffled(samples(44)),
    "workers": with_workers,
    "workers, own generator": lambda: with_workers(generator=torch.Generator().manual_seed(5)),
    "persistent workers": lambda: with_workers(persistent_workers=True),
    "random sampler with replacement": lambda: sampled(RandomSampler, samples(), replacement=True),
    "weighted sampler": lambda: sampled(WeightedRandomSampler, torch.arange(40.0), 40),
    "weighted sampler, own generator": lambda: sampled(
        WeightedRandomSampler, torch.arange(40.0), 40, generator=torch.Generator().manual_seed(5)
    ),
    "subset sampler": lambda: sampled(SubsetRandomSampler, range(8, 40)),
    "subset sampler, own generator": lambda: sampled(
        SubsetRandomSampler, range(8, 40), generator=torch.Generator().manual_seed(5)
    ),
    "batch sampler with a state": lambda: DataLoader(samples(), batch_sampler=Rotating()),
    "prebatched": prebatched,
    "subset": lambda: shuffled(Subset(samples(), range(8, 40))),
    "augmented by random": lambda: shuffled(Augmented(lambda _: random.gauss(0, 1))),
    "augmented by numpy": lambda: shuffled(Augmented(lambda _: np.random.standard_normal())),
    "augmented by torch": lambda: shuffled(Augmented(lambda _: torch.randn(()))),
    "augmented by its own numpy": lambda: shuffled(Augmented(lambda d: d.stream.normal(), np.random.default_rng(5))),
    "augmented by its own random": lambda: shuffled(Augmented(lambda d: d.stream.random(), random.Random(5))),
    "augmented by its own torch": lambda: shuffled(
        Augmented(lambda d: torch.rand((), generator=d.stream), torch.Generator().manual_seed(5))
    ),
    "list": lambda: list(shuffled()),
    "stream": lambda: DataLoader(Restartable(), batch_size=8),
    "stream that counts its epochs": lambda: DataLoader(CountingEpochs(), batch_size=8),
    "stream that shuffles its files": lambda: DataLoader(ShufflingItsFiles(), batch_size=8),
    "stream of a stream": lambda: DataLoader(Around(CountingEpochs()), batch_size=8),
    "chained streams": lambda: DataLoader(ChainDataset([CountingEpochs(), CountingEpochs()]), batch_size=8),
    "list shuffled by hand": lambda: ShufflingItsOrder(list(range(40)), random.shuffle),
    "array shuffled by hand": lambda: ShufflingItsOrder(np.arange(40), np.random.shuffle),
    "tensor shuffled by hand": lambda: ShufflingItsOrder(
        torch.arange(40), lambda order: order.copy_(order[torch.randperm(40)])
    ),
    "loader in a dict": lambda: Wrapped(DataLoader(CountingEpochs(), batch_size=8)),
    "augmented by the file's own": augmented_by_the_file,
    "iterable": Batches,
    "iterable over persistent workers": lambda: Batches(num_workers=1, persistent_workers=True),
    "loader with its own iteration": lambda: Noisy(samples(), batch_size=8, shuffle=True),
    "loader with its own iteration and a sampler with a state": lambda: Noisy(samples(), batch_sampler=Rotating()),
    "loader that keeps its iterator": lambda: Reusing(samples(), batch_size=8, shuffle=True),
}


@forking
@pytest.mark.parametrize("create", rows(DATA))
def test_data_come_in_the_order_and_the_shape_they_would_have_come_in(create):
    assert_same_training(lambda: Run(delicate(), create()))


def measure_on_the_loader(run: Run, stopper: heldin.EarlyStopping) -> None:
    assert heldin.measure(run.model, run.loss_fn, run.loader)["gradient_disparity"] > 0.0


MEASURED_ON = [
    "shuffled",
    "own generator",
    "workers",
    "persistent workers",
    "weighted sampler",
    "batch sampler with a state",
    "augmented by its own numpy",
    "list",
    "stream",
    "stream that counts its epochs",
    "stream that shuffles its files",
    "loader with its own iteration",
    "loader that keeps its iterator",
]


@forking
@pytest.mark.parametrize("create", rows({name: DATA[name] for name in MEASURED_ON}))
def test_measuring_on_a_whole_loader_leaves_it_as_it_was(create):
    assert_same_training(lambda: Run(delicate(), create()), measure_on_the_loader)


class Interrupted(BaseException):
    """As `KeyboardInterrupt`, which is no `Exception` either."""


def fragile() -> nn.Module:
    """A bit of everything that has to be put back."""
    body = nn.Sequential(
        AsWords(),
        nn.Embedding(WORDS, 4, max_norm=1.0),
        nn.Flatten(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(24, 6)),
        nn.BatchNorm1d(6),
        nn.Dropout(0.3),
        Counting(),
    )
    body[5].eval()
    return body


class Failing:
    """Losses that work twice and then do not."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error, self.calls = error, 0

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        self.calls += 1
        losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        if self.calls % 3 == 0:
            raise self.error("on the third batch")
        return losses


class FailingDataset(Augmented):
    """Uses every stream there is, and fails on some samples."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        random.random(), np.random.random(), torch.rand(())
        if index % 7 == 6:
            raise OSError("this sample cannot be read")
        return super().__getitem__(index)


def spoiled(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Three batches, each drawn, one of which is not as it should be."""
    batches = [(torch.randn(8, 6), torch.randint(CLASSES, (8,))) for _ in range(3)]
    batches[1] = change(*batches[1])
    return batches


FAILURES: dict[str, tuple[dict[str, Any], Callable[[], Any], type[BaseException]]] = {
    "loss on the third batch": ({"sample_losses": Failing(RuntimeError)}, shuffled, RuntimeError),
    "interrupted on the third batch": ({"sample_losses": Failing(Interrupted)}, shuffled, Interrupted),
    "wrong number of features": ({}, lambda: spoiled(lambda x, y: (x[:, :5], y)), RuntimeError),
    "wrong number of targets": ({}, lambda: spoiled(lambda x, y: (x, y[:5])), BatchesError),
    "no pair": ({}, lambda: spoiled(lambda x, y: (x, y, y)), BatchesError),
    "sample that cannot be read": ({}, lambda: shuffled(FailingDataset(lambda _: 0.0)), OSError),
    "read once": ({}, lambda: iter(shuffled()), BatchesError),
    "one batch": ({}, lambda: shuffled(batch_size=40), BatchesError),
    "nan": ({"loss_fn": lambda output, target: output[:, 0] * float("nan")}, shuffled, NotFiniteError),
}


@pytest.mark.parametrize(("options", "create", "error"), FAILURES.values(), ids=FAILURES)
def test_a_measurement_that_fails_half_way_leaves_everything_as_it_was(options, create, error):
    def fail(run: Run, stopper: heldin.EarlyStopping) -> None:
        given = {"loss_fn": None if "sample_losses" in options else run.loss_fn} | options
        failing = heldin.EarlyStopping(run.model, batches=3, keep="lowest", **given)
        with torch.random.fork_rng(devices=[]):
            source = create()
        before = frozen(failing.state_dict())
        with pytest.raises(error):
            failing.step(source)
        assert differences(before, frozen(failing.state_dict())) == []
        assert not failing.decision

    assert_same_training(lambda: Run(fragile(), shuffled()), fail)


def test_a_run_that_diverged_is_recorded_as_nan_and_left_as_it_was():
    batches = spoiled(lambda x, y: (x * float("nan"), y))

    def diverge(run: Run, stopper: heldin.EarlyStopping) -> None:
        if not stopper.history:
            stopper.step(run.loader)
        elif len(stopper.history) == 1:
            with pytest.warns(HeldinWarning, match="Recorded as NaN"):
                stopper.step(batches)
        else:
            stopper.step(batches)
            assert [np.isnan(reading.values["gradient_disparity"]) for reading in stopper.history] == [
                number > 0 for number in range(len(stopper.history))
            ]

    assert_same_training(lambda: Run(delicate(), shuffled()), diverge)


AROUND = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast and no_grad": lambda: both(torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad()),
}


@contextmanager
def both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield


@pytest.mark.parametrize("around", rows(AROUND))
def test_measuring_inside_a_context_is_measuring_outside_of_it(around):
    values = []

    def inside_and_outside(run: Run, stopper: heldin.EarlyStopping) -> None:
        twin = heldin.EarlyStopping(run.model, run.loss_fn, batches=3)
        twin.load_state_dict(stopper.state_dict())
        twin.step(run.loader)
        with around():
            stopper.step(run.loader)
        assert stopper.history == twin.history
        values.append(stopper.history[-1].values["gradient_disparity"])

    assert_same_training(lambda: Run(delicate(), shuffled()), inside_and_outside)
    assert len(set(values)) == 4


def test_autocast_stays_in_force_for_those_who_ask_for_it():
    model, batches = nn.Linear(6, CLASSES), list(shuffled())
    loss = nn.CrossEntropyLoss()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        left, off = heldin.measure(model, loss, batches, autocast=True), heldin.measure(model, loss, batches)
    assert off == heldin.measure(model, loss, batches) != left


class Backend:
    """Counts what is compiled and how often it runs."""

    def __init__(self, name: str) -> None:
        self.inner, self.counts = torch._dynamo.lookup_backend(name), {"compilations": 0, "runs": 0}

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.counts["compilations"] += 1
        compiled = self.inner(graph, inputs)

        def counted(*arguments: Any) -> Any:
            self.counts["runs"] += 1
            return compiled(*arguments)

        return counted


def compiled_as_a_module(model: nn.Module, backend: Backend) -> nn.Module:
    return torch.compile(model, backend=backend)


def compiled_in_place(model: nn.Module, backend: Backend) -> nn.Module:
    model.compile(backend=backend)
    return model


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("compiled", [compiled_as_a_module, compiled_in_place])
def test_compiled_models_train_as_if_they_were_not_measured(compiled, name):
    """Nor is anything compiled again, and the values are those of the model before it was compiled."""

    def start() -> Run:
        torch._dynamo.reset()
        inner, backend = Unused(), Backend(name)  # a Sequential compiled in place is left as it is
        run = Run(compiled(inner, backend), shuffled(), watched={"counts": backend.counts})
        run.inner = inner
        return run

    def compare(run: Run, stopper: heldin.EarlyStopping) -> None:
        plain = heldin.EarlyStopping(copy.deepcopy(run.inner), run.loss_fn, batches=3, patience=2)
        plain.load_state_dict(stopper.state_dict())
        assert stopper.step(run.loader) == plain.step(run.loader)
        assert stopper.history == plain.history

    assert trained(start, None)["watched"]["counts"]["runs"] > 0
    assert_same_training(start, compare)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_models_on_a_gpu_train_as_if_they_were_not_measured():
    assert_same_training(lambda: Run(delicate().cuda(), [(x.cuda(), y.cuda()) for x, y in shuffled()]))


def test_weights_that_cannot_be_kept_leave_the_stopper_as_it_was(tmp_path):
    occupied = tmp_path / "weights.pt"
    (occupied / "folder").mkdir(parents=True)
    stopper = heldin.EarlyStopping(delicate(), nn.CrossEntropyLoss(), batches=3, keep="lowest", keep_in=occupied)
    before = stopper.state_dict()
    with pytest.raises(OSError, match="directory"):
        stopper.step(shuffled())
    assert stopper.state_dict() == before
