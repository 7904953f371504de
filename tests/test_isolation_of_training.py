"""Training with heldin and training without it are identical, bit by bit.

Every row of the tables below is trained twice from one seed: once without heldin, and once with `EarlyStopping.step`
and `heldin.measure` after each epoch and twice within an epoch: between the forward pass and `backward`, and between
`backward` and the optimizer's step. At the end the two runs are compared: weights, buffers, `.grad`, flags, attributes,
optimizer, random streams, and the batches in their order. Around each measurement the run is compared with itself.
"""

from __future__ import annotations

import copy
import functools
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.interruptions import InterruptAt
from tests.loaders import Reusing
from tests.states import Unchanged, differences, frozen, public_attributes, state_of
from torch import nn
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

forking = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@dataclass
class Run:
    """A model in training, its data, and further objects that must not change."""

    model: nn.Module
    loader: Any
    loss_fn: Any = field(default_factory=nn.CrossEntropyLoss)
    optimizer: Any = None
    accumulate: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.optimizer is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def modules(self):
        return [self.model, *([self.loss_fn] if isinstance(self.loss_fn, nn.Module) else [])]

    def data(self):
        """The state of the loader and of its parts, and further objects."""
        parts = {name: getattr(self.loader, name, None) for name in ("dataset", "sampler", "batch_sampler")}
        return {
            "loader": public_attributes(self.loader) if hasattr(self.loader, "__dict__") else self.loader,
            **{name: public_attributes(part) for name, part in parts.items() if hasattr(part, "__dict__")},
            "observed": self.observed,
        }

    def state(self):
        return state_of(*self.modules(), optimizer=self.optimizer, **self.data())

    def unchanged(self):
        return Unchanged(*self.modules(), optimizer=self.optimizer, more=self.data)


def seed_everything():
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


def step_and_measure(run, stopper):
    """One step of the stopper, and `measure` on batches stored before."""
    taken = len(stopper.history)
    stopper.step(run.loader)
    assert len(stopper.history) == taken + 1
    batches = [(x.clone(), y.clone()) for x, y in run.observed["batches"][:3]]
    values = heldin.measure(run.model, run.loss_fn, batches, mode=run.options.get("mode", "train"))
    assert values["gradient_disparity"] > 0.0


def train(start, measurement):
    """Train with or without measurements; return the state at the end."""
    seed_everything()
    run = start()
    run.observed["batches"] = []
    stopper = None
    if measurement is not None:
        stopper = heldin.EarlyStopping(run.model, run.loss_fn, **{"batches": 3, "patience": 2} | run.options)

    def measure_here():
        if measurement is not None:
            with run.unchanged():
                measurement(run, stopper)

    for epoch in range(EPOCHS):
        for number, (x, y) in enumerate(run.loader):
            run.observed["batches"].append((x.clone(), y.clone()))
            if number % run.accumulate == 0:
                run.optimizer.zero_grad()
            loss = run.loss_fn(run.model(x), y).mean()
            if (epoch, number) == AFTER_FORWARD:
                measure_here()
            loss.backward()
            if (epoch, number) == AFTER_BACKWARD:
                measure_here()
            if (number + 1) % run.accumulate == 0:
                run.optimizer.step()
        measure_here()
    return run.state()


def assert_same_training(start, measurement=step_and_measure):
    assert differences(train(start, None), train(start, measurement)) == []


def rows(table, not_undone=None):
    """The rows of a table; those in `not_undone` are known limits, with their reason."""
    marks = {name: [pytest.mark.xfail(reason=reason)] for name, reason in (not_undone or {}).items()}
    return [pytest.param(row, id=name, marks=marks.get(name, [])) for name, row in table.items()]


def samples(num=40):
    return TensorDataset(torch.randn(num, 6), torch.randint(CLASSES, (num,)))


def shuffled(dataset=None, **options):
    return DataLoader(samples() if dataset is None else dataset, **{"batch_size": 8, "shuffle": True} | options)


def sensitive():
    """A model that changes with every forward pass and every random number."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES))


class AsWords(nn.Module):
    """Numbers -> word indices, so that all models can use one dataset."""

    def forward(self, x):
        return x.mul(10).long() % WORDS


def words(embedding):
    return nn.Sequential(AsWords(), embedding, nn.Flatten(), nn.Dropout(0.3), nn.Linear(6 * 4, CLASSES))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x.reshape(-1, 3, 2))[0][:, -1])


class Tied(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4, **options)
        self.head = nn.Linear(4, WORDS)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(AsWords()(x)).mean(1))


class Counting(nn.Module):
    """Rebinds attributes and buffers, and writes to buffers, at each forward pass."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.calls = 0
        self.last = torch.zeros(6)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("total", torch.zeros(6), persistent=False)
        self.register_buffer("cache", None)

    def forward(self, x):
        mean = x.detach().mean(0)
        self.calls += 1
        self.last = mean
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.total += mean
        self.cache = self.total / self.calls
        return self.linear(x - self.mean + self.cache / 100 + self.last / 100)


class Collecting(nn.Module):
    """Appends to a list, and accumulates in a tensor that is not a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.collected = []
        self.statistic = torch.zeros(6)

    def forward(self, x):
        self.collected.append(float(x.mean()))
        self.statistic += x.mean(0)
        return self.linear(x + self.statistic / 100) * (1 + len(self.collected) / 1000)


class HiddenTeacher(nn.Module):
    """Holds a second network in a list, so that it is not among its modules."""

    def __init__(self):
        super().__init__()
        self.linear, self.teacher = nn.Linear(6, CLASSES), [nn.BatchNorm1d(6)]

    def forward(self, x):
        teacher = self.teacher[0]
        return self.linear(teacher(x) + teacher.running_mean)


GLOBAL_NOISE = np.random.RandomState(5)


class UsesGlobalNoise(nn.Module):
    def __init__(self):
        super().__init__()
        GLOBAL_NOISE.seed(5)
        self.linear = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.linear(x + GLOBAL_NOISE.standard_normal())


class OwnNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.generator = torch.Generator().manual_seed(1)
        self.others = {"python": random.Random(1), "numpy": np.random.default_rng(1)}

    def forward(self, x):
        noise = torch.randn(x.shape, generator=self.generator)
        return self.linear(x + noise + self.others["python"].random() + self.others["numpy"].random())


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = sensitive(), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.used(x)


class Schedule:
    """A weight that falls with the number of calls, with nested objects."""

    def __init__(self):
        self.calls, self.total, self.history, self.inner = 0, torch.zeros(()), [], {"rates": [Rate()]}

    def __call__(self):
        self.calls += 1
        self.total += 1.0
        self.history.append(self.calls)
        self.inner["rates"][0].value *= 0.9
        return self.inner["rates"][0].value + 0.5 / self.calls + 0.1 / float(self.total) + 0.1 / len(self.history)


class Rate:
    value = 1.0


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.schedule = sensitive(), Schedule()

    def forward(self, x):
        return self.body(x) * self.schedule()


class MovingAverage(nn.Module):
    """A second network that follows the first one at each forward pass, as in MoCo."""

    def __init__(self):
        super().__init__()
        self.leader, self.follower = nn.Linear(6, CLASSES), nn.Linear(6, CLASSES).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for ahead, behind in zip(self.leader.parameters(), self.follower.parameters(), strict=True):
                behind.mul_(0.9).add_(ahead, alpha=0.1)
        return self.leader(x) + self.follower(x)


class FunctionalEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(5 * torch.randn(WORDS, CLASSES))

    def forward(self, x):
        return F.embedding(AsWords()(x), self.table, max_norm=1.0).mean(1)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = sensitive()

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


class AsDouble(nn.Module):
    def forward(self, x):
        return x.double()


def with_frozen_layers():
    model = sensitive()
    model[:2].requires_grad_(False)
    return model


def with_one_layer_in_eval_mode():
    model = sensitive()
    model[1].eval()
    return model


def wrapped_layers(wrap):
    return nn.Sequential(wrap(nn.Linear(6, 8)), nn.ReLU(), nn.Dropout(0.3), wrap(nn.Linear(8, CLASSES)))


MODELS = {
    "batchnorm": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)),
    "batchnorm with a cumulative mean": lambda: nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, CLASSES)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, CLASSES)),
    "spectral norm": lambda: wrapped_layers(nn.utils.parametrizations.spectral_norm),
    "spectral norm by hook": lambda: wrapped_layers(nn.utils.spectral_norm),
    "weight norm": lambda: wrapped_layers(nn.utils.parametrizations.weight_norm),
    "weight norm by hook": lambda: wrapped_layers(nn.utils.weight_norm),
    "lstm": Recurrent,
    "embedding": lambda: words(nn.Embedding(WORDS, 4)),
    "embedding with sparse gradients": lambda: words(nn.Embedding(WORDS, 4, sparse=True)),
    "embedding with max_norm": lambda: words(nn.Embedding(WORDS, 4, max_norm=1.0)),
    "tied weights": Tied,
    "tied weights with max_norm": lambda: Tied(max_norm=1.0),
    "frozen layers": with_frozen_layers,
    "parameters without gradient": Unused,
    "model in evaluation mode": lambda: sensitive().eval(),
    "one layer in evaluation mode": with_one_layer_in_eval_mode,
    "attributes and buffers rebound in forward": Counting,
    "list and tensor changed in place": Collecting,
    "generators in attributes": OwnNoise,
    "schedule that counts calls": Annealed,
    "checkpointed": Checkpointed,
    "float64": lambda: nn.Sequential(AsDouble(), sensitive().double()),
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))),
    "parameters written in forward": MovingAverage,
    "functional embedding with max_norm": FunctionalEmbedding,
    "teacher in a list": HiddenTeacher,
    "generator in a global variable": UsesGlobalNoise,
}
MODELS_NOT_UNDONE = {
    "parameters written in forward": "parameters are not copied, except in embeddings with max_norm",
    "functional embedding with max_norm": "only nn.Embedding and nn.EmbeddingBag are recognised",
    "teacher in a list": "only modules of the model and the loss are restored",
    "generator in a global variable": "global variables are not searched",
}


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.(weight|spectral)_norm.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:2 of 8 trainable parameters received no gradient")
@pytest.mark.parametrize("create", rows(MODELS, MODELS_NOT_UNDONE))
def test_models_train_as_without_measurements(create):
    assert_same_training(lambda: Run(create(), shuffled()))


def gradient_hook(run, calls):
    def double(gradient):
        calls.append(1)
        return gradient * 2

    run.model[0].weight.register_hook(double)


def post_accumulate_hook(run, calls):
    optimizers = {p: torch.optim.Adam([p], lr=0.01) for p in run.model.parameters()}

    def update(parameter):
        calls.append(1)
        optimizers[parameter].step()

    for parameter in run.model.parameters():
        parameter.register_post_accumulate_grad_hook(update)


def backward_hook(run, calls):
    def double(module, inputs, outputs):
        calls.append(1)
        return (inputs[0] * 2,)

    run.model[4].register_full_backward_hook(double)


def backward_pre_hook(run, calls):
    def double(module, outputs):
        calls.append(1)
        return (outputs[0] * 2,)

    run.model[4].register_full_backward_pre_hook(double)


def multi_grad_hook(run, calls):
    torch.autograd.graph.register_multi_grad_hook(tuple(run.model.parameters()), lambda _: calls.append(1))


@pytest.mark.parametrize(
    "add", [gradient_hook, post_accumulate_hook, backward_hook, backward_pre_hook, multi_grad_hook]
)
def test_hooks_run_in_training_only(add):
    def start():
        run = Run(sensitive(), shuffled(), observed={"calls": []})
        add(run, run.observed["calls"])
        return run

    assert train(start, None)["observed"]["calls"] != []
    assert_same_training(start)


OPTIMIZERS = {
    "SGD with momentum": functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": functools.partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW, foreach": functools.partial(torch.optim.AdamW, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("create", rows(OPTIMIZERS))
def test_optimizers_continue_as_without_measurements(create):
    def start():
        model = sensitive()
        return Run(model, shuffled(), optimizer=create(model.parameters()))

    assert_same_training(start)


def test_gradients_continue_to_accumulate():
    waiting = []

    def measure_with_gradients_waiting(run, stopper):
        waiting.append(all(parameter.grad is not None for parameter in run.model.parameters()))
        step_and_measure(run, stopper)

    assert_same_training(lambda: Run(sensitive(), shuffled(), accumulate=3), measure_with_gradients_waiting)
    assert waiting == [True] * 4


OPTIONS = {
    "keep the lowest": {"keep": "lowest"},
    "evaluation mode": {"mode": "eval"},
    "fixed probes": {"probes": "fixed"},
    "several signals": {"signal": [heldin.GradientDisparity(rescale=how) for how in ("std", "minmax", "grad_std")]},
    "pooled losses": {"signal": heldin.GradientDisparity(rescale="pooled_std"), "pool": 4},
}


@pytest.mark.parametrize("options", rows(OPTIONS))
def test_no_option_of_the_stopper_changes_training(options):
    assert_same_training(lambda: Run(with_one_layer_in_eval_mode(), shuffled(), options=options))


class WithState(nn.Module):
    """A loss per sample that depends on earlier calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.norm = nn.BatchNorm1d(CLASSES)
        self.calls = 0

    def forward(self, output, target):
        self.seen += 1
        self.calls += 1
        return F.cross_entropy(self.norm(output), target, reduction="none") * (1 + 1 / self.seen)


class WithStateAndReduction(WithState):
    def __init__(self):
        super().__init__()
        self.reduction = "mean"

    def forward(self, output, target):
        losses = super().forward(output, target)
        return losses if self.reduction == "none" else losses.mean()


LOSSES = {
    "with a reduction": lambda: nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(CLASSES)),
    "function": lambda: F.cross_entropy,
    "with a state": WithState,
    "with a state and a reduction": WithStateAndReduction,
}


@pytest.mark.parametrize("create", rows(LOSSES))
def test_losses_are_as_without_measurements(create):
    assert_same_training(lambda: Run(sensitive(), shuffled(), loss_fn=create()))


def test_sample_losses_in_a_module_are_as_before():
    class SampleLosses(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, model, batch):
            return F.cross_entropy(model(self.norm(batch[0])), batch[1], reduction="none")

    losses = SampleLosses()
    heldin.measure(sensitive(), None, list(shuffled()), sample_losses=losses)
    assert losses.norm.num_batches_tracked == 0


class Augmented(Dataset):
    """Samples with noise from one random stream."""

    def __init__(self, noise, stream=None):
        self.inputs, self.targets = samples().tensors
        self.noise, self.stream = noise, stream

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index] + self.noise(self), self.targets[index]


class Rotating(Sampler):
    """A batch sampler that starts one sample later at each pass, in a random order."""

    def __init__(self, size=40):
        self.size, self.passes, self.order = size, 0, random.Random(5)

    def __len__(self):
        return self.size // 8

    def __iter__(self):
        self.passes += 1
        places = [(place + self.passes) % self.size for place in range(self.size)]
        batches = [places[start : start + 8] for start in range(0, self.size, 8)]
        self.order.shuffle(batches)
        yield from batches


class Stream(IterableDataset):
    """A stream in a new order at each pass."""

    def __init__(self):
        self.samples, self.generator = list(samples()), torch.Generator().manual_seed(5)

    def __iter__(self):
        for index in torch.randperm(len(self.samples), generator=self.generator).tolist():
            yield self.samples[index]


class CountsPasses(Stream):
    """The order follows from the number of passes."""

    def __init__(self):
        super().__init__()
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        self.generator.manual_seed(self.passes)
        return super().__iter__()


class ShufflesInPlace(Stream):
    def __iter__(self):
        random.shuffle(self.samples)
        yield from self.samples


class Around(IterableDataset):
    """A stream over another one."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        yield from self.inner


class Batches:
    """A custom iterable of batches."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        for x, y in self.inner:
            yield x + 0.1 * torch.randn(x.shape), y


class FromDict(Batches):
    def __iter__(self):
        yield from self.inner["train"]


class Noisy(DataLoader):
    """A loader with a custom `__iter__`."""

    def __iter__(self):
        for x, y in super().__iter__():
            yield [x + random.random(), y]


def sampled(sampler, *arguments, **options):
    return shuffled(shuffle=None, sampler=sampler(*arguments, **options))


def with_workers(**options):
    return shuffled(Augmented(lambda _: torch.rand(()).item() + random.random()), num_workers=2, **options)


def seeded():
    return torch.Generator().manual_seed(5)


DATA = {
    "shuffled": shuffled,
    "in order": lambda: shuffled(shuffle=False),
    "with a generator": lambda: shuffled(generator=seeded()),
    "with the global generator": lambda: shuffled(generator=torch.default_generator),
    "drop_last": lambda: shuffled(samples(44), drop_last=True),
    "smaller last batch": lambda: shuffled(samples(44)),
    "workers": with_workers,
    "workers, with a generator": lambda: with_workers(generator=seeded()),
    "persistent workers": lambda: with_workers(persistent_workers=True),
    "random sampler with replacement": lambda: sampled(RandomSampler, samples(), replacement=True),
    "weighted sampler": lambda: sampled(WeightedRandomSampler, torch.arange(40.0), 40),
    "weighted sampler, with a generator": lambda: sampled(
        WeightedRandomSampler, torch.arange(40.0), 40, generator=seeded()
    ),
    "subset sampler": lambda: sampled(SubsetRandomSampler, range(8, 40)),
    "subset sampler, with a generator": lambda: sampled(SubsetRandomSampler, range(8, 40), generator=seeded()),
    "batch sampler with a state": lambda: DataLoader(samples(), batch_sampler=Rotating()),
    "prebatched": lambda: DataLoader(list(shuffled(samples(80))), batch_size=None, shuffle=True),
    "subset": lambda: shuffled(Subset(samples(), range(8, 40))),
    "augmented by random": lambda: shuffled(Augmented(lambda _: random.gauss(0, 1))),
    "augmented by numpy": lambda: shuffled(Augmented(lambda _: np.random.standard_normal())),
    "augmented by torch": lambda: shuffled(Augmented(lambda _: torch.randn(()))),
    "augmented by a numpy generator": lambda: shuffled(
        Augmented(lambda d: d.stream.normal(), np.random.default_rng(5))
    ),
    "augmented by a Random": lambda: shuffled(Augmented(lambda d: d.stream.random(), random.Random(5))),
    "augmented by a torch generator": lambda: shuffled(
        Augmented(lambda d: torch.rand((), generator=d.stream), seeded())
    ),
    "list": lambda: list(shuffled()),
    "stream": lambda: DataLoader(Stream(), batch_size=8),
    "stream that counts its passes": lambda: DataLoader(CountsPasses(), batch_size=8),
    "stream of a stream": lambda: DataLoader(Around(CountsPasses()), batch_size=8),
    "chained streams": lambda: DataLoader(ChainDataset([CountsPasses(), CountsPasses()]), batch_size=8),
    "stream that shuffles a list in place": lambda: DataLoader(ShufflesInPlace(), batch_size=8),
    "iterable": lambda: Batches(shuffled()),
    "iterable over a stream": lambda: Batches(DataLoader(CountsPasses(), batch_size=8)),
    "iterable over a loader in a dict": lambda: FromDict({"train": DataLoader(CountsPasses(), batch_size=8)}),
    "iterable over persistent workers": lambda: Batches(shuffled(num_workers=1, persistent_workers=True)),
    "loader with a custom __iter__": lambda: Noisy(samples(), batch_size=8, shuffle=True),
    "loader with a custom __iter__ and a sampler with a state": lambda: Noisy(samples(), batch_sampler=Rotating()),
    "loader that keeps its iterator": lambda: Reusing(samples(), batch_size=8, shuffle=True),
}
DATA_NOT_UNDONE = {
    "stream that shuffles a list in place": "lists and arrays of a stream are not copied",
}


@forking
@pytest.mark.parametrize("create", rows(DATA, DATA_NOT_UNDONE))
def test_data_are_in_the_same_order_as_without_measurements(create):
    assert_same_training(lambda: Run(sensitive(), create()))


MEASURED_AS_A_WHOLE = [
    "shuffled",
    "with a generator",
    "persistent workers",
    "weighted sampler",
    "batch sampler with a state",
    "augmented by a numpy generator",
    "list",
    "stream",
    "stream that counts its passes",
    "loader with a custom __iter__",
    "loader that keeps its iterator",
]


@forking
@pytest.mark.parametrize("create", rows({name: DATA[name] for name in MEASURED_AS_A_WHOLE}))
def test_measuring_on_a_whole_loader_leaves_it_as_it_was(create):
    def measure(run, stopper):
        assert heldin.measure(run.model, run.loss_fn, run.loader)["gradient_disparity"] > 0.0

    assert_same_training(lambda: Run(sensitive(), create()), measure)


def fragile():
    """A model with one layer of each kind that has to be restored."""
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
    """Losses that raise at the third batch."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def __call__(self, model, batch):
        self.calls += 1
        losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        if self.calls % 3 == 0:
            raise self.error("on the third batch")
        return losses


class FailingDataset(Augmented):
    """Uses every random stream, and cannot read some samples."""

    def __getitem__(self, index):
        random.random(), np.random.random(), torch.rand(())
        if index % 7 == 6:
            raise OSError("this sample cannot be read")
        return super().__getitem__(index)


def with_a_bad_batch(change):
    """Three batches, the second of which is changed."""
    batches = [(torch.randn(8, 6), torch.randint(CLASSES, (8,))) for _ in range(3)]
    batches[1] = change(*batches[1])
    return batches


FAILURES = {
    "loss on the third batch": ({"sample_losses": Failing(RuntimeError)}, shuffled, RuntimeError),
    "interrupted on the third batch": ({"sample_losses": Failing(KeyboardInterrupt)}, shuffled, KeyboardInterrupt),
    "wrong number of features": ({}, lambda: with_a_bad_batch(lambda x, y: (x[:, :5], y)), RuntimeError),
    "wrong number of targets": ({}, lambda: with_a_bad_batch(lambda x, y: (x, y[:5])), BatchesError),
    "not a pair": ({}, lambda: with_a_bad_batch(lambda x, y: (x, y, y)), BatchesError),
    "sample that cannot be read": ({}, lambda: shuffled(FailingDataset(lambda _: 0.0)), OSError),
    "iterator": ({}, lambda: iter(shuffled()), BatchesError),
    "one batch of few samples": ({}, lambda: [(torch.randn(5, 6), torch.randint(CLASSES, (5,)))], BatchesError),
    "nan": ({"loss_fn": lambda output, target: output[:, 0] * float("nan")}, shuffled, NotFiniteError),
}


@pytest.mark.parametrize(("options", "create", "error"), FAILURES.values(), ids=FAILURES)
def test_a_measurement_that_fails_leaves_everything_as_it_was(options, create, error):
    def fail(run, stopper):
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised while a generator is closed
def test_an_interruption_anywhere_in_a_measurement_leaves_everything_as_it_was():
    seed_everything()
    noise = Augmented(lambda d: d.stream.normal() + random.random() + np.random.random(), np.random.default_rng(5))
    run = Run(nn.Sequential(sensitive(), nn.Identity()), shuffled(noise, generator=seeded()))
    own = run.observed["generators"] = [OwnNoise().generator, random.Random(1)]
    run.model[1].generators = list(own)

    signals = ["gradient_disparity", "gsnr", "class_alignment", "label_wave", "optimization_variance"]  # all needs

    def step():
        stopper = heldin.EarlyStopping(run.model, run.loss_fn, signal=signals, optimizer=run.optimizer, batches=2)
        stopper.step(run.loader)

    step()  # later steps execute the same lines
    with InterruptAt() as counted:
        step()
    before = run.state()
    for number in range(1, counted.lines + 1, max(1, counted.lines // 70)):
        try:
            with InterruptAt(number):
                step()
        except KeyboardInterrupt:  # a checkpoint may be saved here
            assert differences(before, run.state()) == [], f"interrupted at line {number} of {counted.lines}"
        assert differences(before, run.state()) == []
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_a_run_that_diverged_is_recorded_as_nan_and_left_as_it_was():
    batches = with_a_bad_batch(lambda x, y: (x * float("nan"), y))

    def diverge(run, stopper):
        if not stopper.history:
            stopper.step(run.loader)
        elif len(stopper.history) == 1:
            with pytest.warns(HeldinWarning, match="Recorded as NaN"):
                stopper.step(batches)
        else:
            stopper.step(batches)
        values = [reading.values["gradient_disparity"] for reading in stopper.history]
        assert np.isnan(values).tolist() == [number > 0 for number in range(len(values))]

    assert_same_training(lambda: Run(sensitive(), shuffled()), diverge)


AROUND = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("around", rows(AROUND))
def test_measuring_inside_a_context_is_the_same_as_outside(around):
    values = []

    def inside_and_outside(run, stopper):
        outside = heldin.EarlyStopping(run.model, run.loss_fn, batches=3)
        outside.load_state_dict(stopper.state_dict())
        outside.step(run.loader)
        with around():
            stopper.step(run.loader)
        assert stopper.history == outside.history
        values.append(stopper.history[-1].values["gradient_disparity"])

    assert_same_training(lambda: Run(sensitive(), shuffled()), inside_and_outside)
    assert len(set(values)) == 4


def test_autocast_is_kept_on_request():
    model, batches = nn.Linear(6, CLASSES), list(shuffled())
    loss = nn.CrossEntropyLoss()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept, off = heldin.measure(model, loss, batches, autocast=True), heldin.measure(model, loss, batches)
    assert off == heldin.measure(model, loss, batches) != kept


class Backend:
    """Counts compilations and runs."""

    def __init__(self, name):
        self.inner, self.counts = torch._dynamo.lookup_backend(name), {"compilations": 0, "runs": 0}

    def __call__(self, graph, inputs):
        self.counts["compilations"] += 1
        compiled = self.inner(graph, inputs)

        def counted(*arguments):
            self.counts["runs"] += 1
            return compiled(*arguments)

        return counted


def compile_as_a_module(model, backend):
    return torch.compile(model, backend=backend)


def compile_in_place(model, backend):
    model.compile(backend=backend)
    return model


@pytest.mark.filterwarnings("ignore:2 of 8 trainable parameters received no gradient")
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("compile_model", [compile_as_a_module, compile_in_place])
def test_compiled_models_train_as_without_measurements(compile_model, name):
    """Nothing is compiled again, and the readings are those of the model before it was compiled."""

    def start():
        torch._dynamo.reset()
        inner, backend = Unused(), Backend(name)
        run = Run(compile_model(inner, backend), shuffled(), observed={"counts": backend.counts})
        run.inner = inner
        return run

    def compare(run, stopper):
        plain = heldin.EarlyStopping(copy.deepcopy(run.inner), run.loss_fn, batches=3, patience=2)
        plain.load_state_dict(stopper.state_dict())
        assert stopper.step(run.loader) == plain.step(run.loader)
        assert stopper.history == plain.history

    assert train(start, None)["observed"]["counts"]["runs"] > 0
    assert_same_training(start, compare)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_models_on_a_gpu_train_as_without_measurements():
    assert_same_training(lambda: Run(sensitive().cuda(), [(x.cuda(), y.cuda()) for x, y in shuffled()]))


def test_weights_that_cannot_be_kept_leave_the_stopper_as_it_was(tmp_path):
    occupied = tmp_path / "weights.pt"
    (occupied / "folder").mkdir(parents=True)
    stopper = heldin.EarlyStopping(sensitive(), nn.CrossEntropyLoss(), batches=3, keep="lowest", keep_in=occupied)
    before = stopper.state_dict()
    with pytest.raises(OSError, match="directory"):
        stopper.step(shuffled())
    assert stopper.state_dict() == before
