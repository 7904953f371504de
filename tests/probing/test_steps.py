"""Hypothetical steps equal those of the user's optimizer, and nothing of the user's is changed."""

import copy
import itertools
import queue
import random

import pytest
import torch
from tests.states import Unchanged
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from heldin.errors import ArgumentError, BatchesError, LossError, UnmeasurableError
from heldin.probing.isolation import derive_seed
from heldin.probing.probe import Probe
from heldin.probing.steps import random_label_step, stepped_outputs

CLASSES, SEED = 3, 7


def sensitive():
    """A model that changes with every forward pass and every random number."""
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, CLASSES)]
    return nn.Sequential(*layers).double()


def batches(num=3, size=6):
    return [(torch.randn(size, 4, dtype=torch.float64), torch.randint(CLASSES, (size,))) for _ in range(num)]


def train(model, optimizer, data, loss=F.cross_entropy):
    for x, y in data:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def copies(model, build, optimizer):
    """A copy of the model and of the optimizer."""
    own = copy.deepcopy(model)
    again = build(own.parameters())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return own, again


def by_hand(model, build, optimizer, data, num_inputs=1000, loss=F.cross_entropy):
    """The definition: for each batch copy everything, take a step, compute outputs."""
    state, rows = torch.get_rng_state(), []
    for index, (x, y) in enumerate(data):
        own, again = copies(model, build, optimizer)
        torch.manual_seed(derive_seed(SEED, "step", index))

        def closure(own=own, again=again, x=x, y=y):
            again.zero_grad()
            value = loss(own(x), y)
            value.backward()
            return value

        again.step(closure)
        own.eval()
        with torch.no_grad():
            rows.append(torch.cat([own(inputs) for inputs, _ in data])[:num_inputs])
    torch.set_rng_state(state)
    return torch.stack(rows)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw, amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adam, foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam, fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adam, a tensor for lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "l-bfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
    "l-bfgs, line search": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, line_search_fn="strong_wolfe"),
}


@pytest.mark.parametrize("build", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("warm", [True, False], ids=["with a state", "fresh"])
def test_stepped_outputs_are_those_of_the_users_optimizer(build, warm):
    model, data = sensitive(), batches()
    optimizer = build(model.parameters())
    if warm and not isinstance(optimizer, torch.optim.LBFGS):
        train(model, optimizer, batches(4))
    found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED, num_inputs=10)
    expected = by_hand(model, build, optimizer, data, num_inputs=10)
    assert found.shape == (3, 10, CLASSES)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found[0], found[1])


def test_l_bfgs_with_a_history_steps_as_in_training():
    model, data = sensitive().eval(), batches()
    build = OPTIMIZERS["l-bfgs, line search"]
    optimizer = build(model.parameters())
    for x, y in batches(3):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    found = stepped_outputs(Probe(model, nn.CrossEntropyLoss(), mode="eval"), data, optimizer, seed=SEED)
    torch.testing.assert_close(found, by_hand(model, build, optimizer, data), rtol=1e-10, atol=1e-12)


def test_steps_follow_from_the_seed_alone():
    model, data = sensitive(), batches()
    optimizer = torch.optim.Adam(model.parameters())
    probe = Probe(model, nn.CrossEntropyLoss(), seed=1)
    one, same, other = (stepped_outputs(probe, data, optimizer, seed=seed) for seed in (None, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


class Words(nn.Module):
    """Numbers -> words -> classes; the embedding may be tied to the head, sparse, or renormalised."""

    def __init__(self, tied=False, **options):
        super().__init__()
        self.embedding = nn.Embedding(9, 5, **options)
        self.head = nn.Linear(5, 9)
        if tied:
            self.head.weight = self.embedding.weight
        self.double()

    def forward(self, x):
        return self.head(self.embedding((x * 10).long() % 9).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(4, CLASSES)
        self.double()

    def forward(self, x):
        return self.head(self.lstm(x.reshape(-1, 2, 2))[0][:, -1])


def with_parametrizations():
    return nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)),
        nn.utils.parametrizations.weight_norm(nn.Linear(6, CLASSES)),
    ).double()


def frozen():
    model = sensitive()
    model[0].requires_grad_(False)
    return model


class Shared(nn.Module):
    """Two parameters with one gradient tensor, and one whose gradient is an expanded number."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(CLASSES).double()) for _ in range(3))

    def forward(self, x):
        return x[:, :CLASSES] * (self.a + self.b) + self.c.sum()


class Halving(torch.optim.SGD):
    """Writes to the gradients, as optimizers that clip them do."""

    def step(self, closure=None):
        loss = None if closure is None else closure()
        for parameter in self.param_groups[0]["params"]:
            parameter.grad.mul_(0.5)
        super().step()
        return loss


MODELS = {
    "tied weights": (lambda: Words(tied=True), OPTIMIZERS["momentum"]),
    "sparse gradients": (lambda: Words(sparse=True), OPTIMIZERS["sgd"]),
    "an embedding with max_norm": (lambda: Words(max_norm=0.5), OPTIMIZERS["adamw, amsgrad"]),
    "an LSTM": (Recurrent, OPTIMIZERS["adam"]),
    "parametrizations": (with_parametrizations, OPTIMIZERS["adam"]),
    "frozen layers": (frozen, OPTIMIZERS["momentum"]),
    "gradients that share memory": (Shared, lambda p: Halving(p, lr=0.1)),
    "an optimizer of a part": (sensitive, lambda p: torch.optim.SGD(list(p)[-2:], lr=0.1, momentum=0.9)),
    "layers in evaluation mode": (lambda: sensitive().apply(bn_in_eval), OPTIMIZERS["adam"]),
}


def bn_in_eval(module):
    if isinstance(module, nn.BatchNorm1d):
        module.eval()


@pytest.mark.parametrize(("create", "build"), MODELS.values(), ids=MODELS)
def test_models_of_all_kinds_step_as_in_training_and_are_not_changed(create, build):
    model, data = create(), batches()
    optimizer = build(model.parameters())
    train(model, optimizer, batches(2))
    with Unchanged(model, optimizer=optimizer):
        found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED)
    torch.testing.assert_close(found, by_hand(model, build, optimizer, data), rtol=1e-10, atol=1e-12)


def test_sparse_adam_steps_sparse_gradients():
    model, data = nn.Sequential(Words(sparse=True).embedding, nn.Flatten()), batches()

    def build(parameters):
        return torch.optim.SparseAdam(list(parameters), lr=0.1)

    def loss(output, target):
        return output.square().mean(1) * (target + 1)

    data = [((x * 10).long() % 9, y) for x, y in data]
    optimizer = build(model.parameters())
    train(model, optimizer, data, lambda output, target: loss(output, target).mean())
    found = stepped_outputs(Probe(model, loss), data, optimizer, seed=SEED)
    expected = by_hand(model, build, optimizer, data, loss=lambda output, target: loss(output, target).mean())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class Scaled(nn.Module):
    """A loss with a parameter that the optimizer steps too."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.reduction = "mean"

    def forward(self, output, target):
        return F.cross_entropy(output * self.log_scale.exp(), target, reduction=self.reduction) + self.log_scale


def test_a_loss_with_parameters_is_stepped_on_copies():
    model, loss, data = nn.Linear(4, CLASSES).double(), Scaled(), batches(1)
    both = [*model.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(both, lr=0.5)
    before, after = random_label_step(Probe(model, loss), data, optimizer, seed=SEED)
    assert loss.log_scale == 0.0
    assert loss.log_scale.grad is None
    only = random_label_step(Probe(model, loss), data, torch.optim.SGD(model.parameters(), lr=0.5), seed=SEED)
    assert before == only[0]
    assert after < only[1] - 0.1  # the parameter of the loss was stepped as well


def dict_losses(model, batch):
    assert type(model) is nn.Sequential, "sample_losses gets the user's model"
    return F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")


def test_other_batches_are_passed_through_sample_losses():
    model, data = sensitive(), batches()
    optimizer = torch.optim.Adam(model.parameters())
    others = [{"x": x, "y": y} for x, y in data]
    with Unchanged(model, optimizer=optimizer):
        found = stepped_outputs(Probe(model, None, sample_losses=dict_losses), others, optimizer, num_inputs=8)
    assert torch.equal(found, stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer, num_inputs=8))


class Counter:
    """A hook that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *arguments):
        self.calls += 1


@pytest.mark.parametrize("name", ["momentum", "adam", "adam, a tensor for lr", "rmsprop"])
def test_schedulers_and_hooks_of_the_optimizer_are_not_called(name):
    model, data = sensitive(), batches()
    optimizer = OPTIMIZERS[name](model.parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    train(model, optimizer, data)
    scheduler.step()
    count = Counter()
    handles = [
        optimizer.register_step_pre_hook(count),
        optimizer.register_step_post_hook(count),
        register_optimizer_step_pre_hook(count),
        register_optimizer_step_post_hook(count),
        model[0].weight.register_hook(count),
        model[0].weight.register_post_accumulate_grad_hook(count),
    ]
    try:
        step = optimizer.step
        schedule = lambda: {"scheduler": scheduler.state_dict(), "called": optimizer._opt_called}  # noqa: E731
        with Unchanged(model, optimizer=optimizer, more=schedule):
            found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED)
            losses = random_label_step(Probe(model, nn.CrossEntropyLoss()), data, optimizer)
        assert count.calls == 0
        assert optimizer.step is step
        train(model, optimizer, data[:1])
        assert count.calls == 6  # they all still work
    finally:
        for handle in handles:
            handle.remove()
    assert torch.isfinite(found).all()
    assert losses[0] != losses[1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 3, 5, 6])
def test_a_failure_changes_nothing(error, at):
    """In the first step, in its outputs, in the second step, and in its outputs."""
    model, data, calls = sensitive(), batches(), itertools.count(1)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, data)

    def failing(model, batch):
        torch.rand(3), random.random()
        losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        if next(calls) == at:
            raise error("failed")
        return losses

    with Unchanged(model, optimizer=optimizer), pytest.raises(error, match="failed"):
        stepped_outputs(Probe(model, None, sample_losses=failing), data, optimizer)
    assert next(calls) == at + 1


class Breaking(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        raise ZeroDivisionError("after the step")


def test_an_optimizer_that_fails_changes_nothing():
    model, data = sensitive(), batches()
    optimizer, count = Breaking(model.parameters(), lr=0.1), Counter()
    handle = register_optimizer_step_pre_hook(count)
    try:
        with Unchanged(model, optimizer=optimizer), pytest.raises(ZeroDivisionError):
            stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer)
        assert count.calls == 0
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert count.calls == 1
    finally:
        handle.remove()


class Wrapper(torch.optim.SGD):
    """Has attributes that torch does not copy, a reference to itself among them, and copies its hooks."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.first, self.me, self.factor = self.param_groups[0]["params"][0], self, 3.0

    def __getstate__(self):
        return vars(self)

    def step(self, closure=None):
        assert self.me is self
        super().step(closure)
        with torch.no_grad():
            self.first.mul_(self.factor)


def test_all_attributes_of_an_optimizer_are_copied():
    model, data, calls = sensitive(), batches(), []
    optimizer = Wrapper(model.parameters())
    lr_scheduler.StepLR(optimizer, 1)
    optimizer.register_step_pre_hook(lambda *arguments: calls.append(1))
    with Unchanged(model, optimizer=optimizer):
        found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED)
    assert calls == []
    torch.testing.assert_close(found, by_hand(model, Wrapper, optimizer, data), rtol=1e-10, atol=1e-12)


class Uncopyable(torch.optim.SGD):
    def __deepcopy__(self, memo):
        raise TypeError("holds a connection")


def test_an_optimizer_that_cannot_be_copied_is_refused():
    model = sensitive()
    with pytest.raises(UnmeasurableError, match="holds a connection"):
        stepped_outputs(Probe(model, nn.CrossEntropyLoss()), batches(), Uncopyable(model.parameters(), lr=0.1))


@pytest.mark.parametrize("measure", [stepped_outputs, random_label_step])
def test_optimizers_that_cannot_be_used_are_refused(measure):
    probe = Probe(sensitive(), nn.CrossEntropyLoss())
    with pytest.raises(UnmeasurableError, match=r"Pass optimizer=\.\.\."):
        measure(probe, batches(), None)
    with pytest.raises(ArgumentError, match="Found a float"):
        measure(probe, batches(), 0.1)
    with pytest.raises(ArgumentError, match="without any of the 6 trainable ones of Sequential"):
        measure(probe, batches(), torch.optim.SGD(sensitive().parameters(), lr=0.1))
    with pytest.raises(BatchesError, match="Found none"):
        measure(probe, [], torch.optim.SGD(probe.model.parameters(), lr=0.1))


def test_a_loss_that_does_not_depend_on_the_optimizers_parameters_is_refused():
    model = sensitive()
    model.extra = nn.Linear(2, 2).double()
    probe = Probe(model[:5], nn.CrossEntropyLoss())
    probe.model.extra = model.extra
    probe.model.forward = lambda x: nn.Sequential(*list(model)[:5])(x)
    with pytest.raises(LossError, match="none of them takes part"):
        stepped_outputs(probe, batches(), torch.optim.SGD(model.extra.parameters(), lr=0.1))


@pytest.mark.parametrize("num_inputs", [0, 2.0, None])
def test_an_invalid_number_of_inputs_is_refused(num_inputs):
    model = sensitive()
    with pytest.raises(ArgumentError, match="num_inputs"):
        stepped_outputs(
            Probe(model, nn.CrossEntropyLoss()),
            batches(),
            torch.optim.SGD(model.parameters(), lr=0.1),
            num_inputs=num_inputs,
        )


@pytest.mark.parametrize("name", ["sgd", "adam", "l-bfgs"])
def test_a_random_label_step_is_a_step_of_training_on_other_labels(name):
    model, data = sensitive(), batches()
    optimizer = OPTIMIZERS[name](model.parameters())
    if name != "l-bfgs":
        train(model, optimizer, batches(2))
    seen = queue.LifoQueue()

    def losses(model, batch):
        seen.put(batch)
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    before, after = random_label_step(Probe(model, None, sample_losses=losses), data, optimizer, seed=SEED)
    inputs, labels = seen.get_nowait()
    assert labels.dtype is torch.long
    assert not torch.equal(labels, data[0][1])
    assert torch.equal(inputs, data[0][0])

    own, again = copies(model, OPTIMIZERS[name], optimizer)
    torch.manual_seed(derive_seed(SEED, "random label step"))
    values = []

    def closure():
        again.zero_grad()
        values.append(F.cross_entropy(own(data[0][0]), labels))
        values[-1].backward()
        return values[-1]

    again.step(closure)
    assert before == pytest.approx(values[0].item(), rel=1e-12)
    assert after == pytest.approx(F.cross_entropy(own(data[0][0]), labels).item(), rel=1e-10)
    assert (before, after) == random_label_step(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED)
    assert (before, after) != random_label_step(Probe(model, nn.CrossEntropyLoss()), data, optimizer, seed=SEED + 1)


def labels_seen(model, batch, loss, seed=SEED):
    seen = queue.LifoQueue()

    def losses(model, batch):
        seen.put(batch[1])
        return loss(model(batch[0]), batch[1])

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    random_label_step(Probe(model, None, sample_losses=losses), [batch], optimizer, seed=seed)
    return seen.get_nowait()


def test_random_labels_are_uniform_over_the_classes_of_the_output():
    model = nn.Linear(2, 5)
    batch = [torch.randn(5000, 2), torch.zeros(5000, dtype=torch.int32)]
    found = labels_seen(model, batch, lambda output, target: F.cross_entropy(output, target.long(), reduction="none"))
    assert found.dtype is torch.int32
    shares = torch.bincount(found, minlength=5) / 5000
    assert len(shares) == 5
    assert (shares - 0.2).abs().max() < 0.03


def test_targets_that_the_loss_ignores_stay_ignored():
    seen = []

    class Recording(nn.CrossEntropyLoss):
        def forward(self, outputs, targets):
            seen.append(targets.clone())
            return super().forward(outputs, targets)

    model, targets = nn.Linear(2, 5), torch.randint(5, (200,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    random_label_step(Probe(model, Recording(ignore_index=0)), [(torch.randn(200, 2), targets)], optimizer, seed=SEED)
    assert (seen[-1][targets == 0] == 0).all()
    assert (seen[-1][targets != 0] != targets[targets != 0]).any()


def test_labels_of_segments_sequences_and_two_classes():
    pixels = nn.Conv1d(2, 4, 1)
    found = labels_seen(
        pixels,
        (torch.randn(50, 2, 6), torch.zeros(50, 6, dtype=torch.long)),
        lambda output, target: F.cross_entropy(output, target, reduction="none").mean(1),
    )
    assert found.shape == (50, 6)
    assert found.unique().tolist() == [0, 1, 2, 3]
    padded = torch.zeros(50, 6, dtype=torch.long)
    padded[:, 4:] = -100
    words = nn.Linear(2, 7)
    found = labels_seen(
        words,
        (torch.randn(50, 6, 2), padded),
        lambda output, target: F.cross_entropy(output.transpose(1, 2), target, reduction="none").mean(1),
    )
    assert found[:, :4].unique().tolist() == list(range(7))
    assert (found[:, 4:] == -100).all()
    found = labels_seen(
        nn.Linear(2, 1),
        (torch.randn(50, 2), torch.zeros(50, dtype=torch.long)),
        lambda output, target: F.binary_cross_entropy_with_logits(output[:, 0], target.float(), reduction="none"),
    )
    assert found.unique().tolist() == [0, 1]


X = torch.randn(4, 4).double()


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ((X, torch.randn(4).double()), "torch.float64"),
        ((X, torch.ones(4, dtype=torch.bool)), "torch.bool"),
        ((X, torch.ones(4, CLASSES, dtype=torch.long)), r"shape \(4, 3\)"),
        ((X, [0, 1, 2, 0]), "targets that are a list"),
        ({"x": X, "y": torch.zeros(4, dtype=torch.long)}, "a dict"),
    ],
)
def test_targets_that_are_not_classes_are_refused(batch, found):
    model = sensitive()

    def losses(model, batch):
        return model(batch["x"] if isinstance(batch, dict) else batch[0]).sum(1)

    with pytest.raises(UnmeasurableError, match=found):
        random_label_step(
            Probe(model, None, sample_losses=losses), [batch], torch.optim.SGD(model.parameters(), lr=0.1)
        )


def test_a_random_label_step_changes_nothing():
    model, data = sensitive(), batches()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, data)
    targets = data[0][1].clone()
    with Unchanged(model, optimizer=optimizer):
        random_label_step(Probe(model, nn.CrossEntropyLoss()), data, optimizer)
    assert torch.equal(data[0][1], targets)
