"""Moments of per-sample gradients, against one plain backward pass per sample and against Opacus."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext

import pytest
import torch
from tests.states import Unchanged
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import heldin
from heldin.errors import BatchesError, HeldinWarning, LossError, NotFiniteError, UnmeasurableError
from heldin.probing import Probe, per_sample
from heldin.probing.per_sample import class_moments, sample_moments
from heldin.signals import reference

NUM, CLASSES = 12, 3
DOUBLE = torch.float64


def cross_entropy(output, target):
    return F.cross_entropy(output, target, reduction="none")


def images(dtype, num=NUM):
    return torch.randn(num, 2, 6, 6).to(dtype), torch.arange(num) % CLASSES


def vectors(dtype, num=NUM):
    return torch.randn(num, 6).to(dtype), torch.arange(num) % CLASSES


def words(dtype, num=NUM):
    return torch.randint(11, (num, 5)), torch.arange(num) % CLASSES


class Tied(nn.Module):
    """An embedding whose weights are also those of the last layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.middle = nn.Linear(4, 4)
        self.last = nn.Linear(4, 11, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, x):
        return self.last(self.middle(self.embedding(x).mean(1)).tanh())


class UsedTwice(nn.Module):
    """One layer called twice, one whose weight is used elsewhere too, and one that is never called."""

    def __init__(self):
        super().__init__()
        self.twice, self.elsewhere, self.never = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x):
        x = self.twice(self.twice(x).tanh())
        return self.elsewhere(x) + x @ self.elsewhere.weight.t().square()


class Reversed(nn.Module):
    """The rows of the inner layer are the samples in another order."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.outer(self.inner(x.flip(0)).tanh().flip(0))


class ReadsValues(nn.Module):
    """Reads a value of each sample, which vmap does not support."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(1, 3, 6)

    def forward(self, x):
        signs = torch.tensor([1.0 if row.sum().item() > 0 else -1.0 for row in x]).to(x)
        return signs[:, None] * self.layer(x[:, None]).squeeze(2).tanh()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.last = nn.Embedding(11, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0][:, -1])


class Tokens(nn.Module):
    """Linear layers over tokens, a normalisation and attention: without biases, since that of keys has no gradient."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4, padding_idx=0)
        self.attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
        self.norm, self.up, self.last = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 3, bias=False)

    def forward(self, x):
        x = self.embedding(x)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.last(F.gelu(self.up(x))).mean(1)


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))


def with_frozen_layers():
    model = nn.Sequential(*mlp(), nn.Linear(3, 3), nn.Linear(3, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    return model


def convolution():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2, stride=2), nn.Flatten(), nn.Linear(12, 3))


def with_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(64, 3)
    )
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    return model


def sparse():
    return nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3))


def weight_norm():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3))


class Stores(nn.Module):
    """Stores a tensor in each forward pass, and reads it in the next one."""

    def __init__(self):
        super().__init__()
        self.layer, self.last, self.mean = nn.Conv1d(1, 4, 3), nn.Linear(16, 3), torch.zeros(4, 1)

    def forward(self, x):
        hidden = self.layer(x[:, None])
        shifted = hidden - 0.0 * self.mean
        self.mean = hidden.detach().mean((0, 2)).unsqueeze(1)
        return self.last(shifted.flatten(1))


MODELS = {
    "mlp": (mlp, vectors),
    "stores a tensor": (Stores, vectors),
    "frozen layers": (with_frozen_layers, vectors),
    "convolution": (convolution, images),
    "batch norm": (with_batch_norm, images),
    "tied": (Tied, words),
    "used twice": (UsedTwice, vectors),
    "rows reversed": (Reversed, vectors),
    "tokens": (Tokens, words),
    "weight norm": (weight_norm, vectors),
}
ONE_BY_ONE = {
    "reads values": (ReadsValues, vectors),
    "sparse embedding": (sparse, words),
    "lstm": (Recurrent, words),
}


def assert_moments(found, G, rel):
    live = G[:, (G != 0).any(0)]
    assert (found.num_samples, found.num_parameters, found.num_live) == (*G.shape, live.shape[1])
    assert found.t_sq_sum == pytest.approx(float((len(G) * live.mean(0) ** 2 / live.var(0)).sum()), rel=rel)
    assert found.mean_sq == pytest.approx(float(G.mean(0).square().sum()), rel=rel, abs=0)
    assert found.variance == pytest.approx(float(G.var(0).sum()), rel=rel, abs=0)
    assert found.norm_sq_sum == pytest.approx(float(G.square().sum()), rel=rel, abs=0)


def assert_class_moments(found, G, labels, rel):
    assert [one.label for one in found] == labels.unique().tolist()
    for one in found:
        rows = G[labels == one.label]
        norms = rows.norm(dim=1)
        units = rows[norms > 0] / norms[norms > 0, None]
        assert (one.num_samples, one.num_units) == (len(rows), len(units))
        assert one.norm_sum == pytest.approx(float(norms.sum()), rel=rel, abs=0)
        assert one.norm_sq_sum == pytest.approx(float(norms.square().sum()), rel=rel, abs=0)
        assert one.sum_sq == pytest.approx(float(rows.sum(0).square().sum()), rel=rel, abs=0)
        assert one.unit_sum_sq == pytest.approx(float(units.sum(0).square().sum()), rel=rel, abs=0)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_moments_are_those_of_plain_backward_passes(name, dtype):
    build, make_batch = MODELS[name]
    model, batches = build().to(dtype), [make_batch(dtype), make_batch(dtype, 8)]
    probe, rel = Probe(model, nn.CrossEntropyLoss()), 1e-10 if dtype is DOUBLE else 1e-4
    found, by_class = sample_moments(probe, batches), class_moments(probe, batches)
    rows = [reference.sample_gradients(model, cross_entropy, batch) for batch in batches]
    for one, G in zip(found, rows, strict=True):
        assert_moments(one, G, rel)
    assert_class_moments(by_class, torch.cat(rows), torch.cat([y for _, y in batches]), rel)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_model_without_vmap_support_is_measured_one_sample_at_a_time_with_one_warning(name):
    build, make_batch = ONE_BY_ONE[name]
    model, batches = build().to(DOUBLE), [make_batch(DOUBLE), make_batch(DOUBLE)]
    probe = Probe(model, nn.CrossEntropyLoss())
    with pytest.warns(HeldinWarning, match=r"one sample at a time.*vmap \(\w+: .*The numbers are the same") as shown:
        found, by_class = sample_moments(probe, batches), class_moments(probe, batches)
    assert len(shown) == 1
    rows = [reference.sample_gradients(model, cross_entropy, batch) for batch in batches]
    for one, G in zip(found, rows, strict=True):
        assert_moments(one, G, 1e-10)
    assert_class_moments(by_class, torch.cat(rows), torch.cat([y for _, y in batches]), 1e-10)


@pytest.mark.filterwarnings("ignore:Gradients of single samples are computed one sample at a time")
def test_an_lstm_in_single_precision_is_right_with_and_without_vmap():
    model, batch = Recurrent(), words(torch.float32)
    (found,) = sample_moments(Probe(model, nn.CrossEntropyLoss()), [batch])
    assert_moments(found, reference.sample_gradients(model, cross_entropy, batch), 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1e-3, 1e4, 1e10])
@pytest.mark.parametrize("name", ["mlp", "convolution"])
def test_moments_are_exact_at_every_scale_of_the_loss(name, scale, dtype):
    build, make_batch = MODELS[name]
    model, batch = build().to(dtype), make_batch(dtype)
    rel = 1e-10 if dtype is DOUBLE else 1e-4

    def loss(output, target):
        return scale * cross_entropy(output, target)

    probe, G = Probe(model, loss), reference.sample_gradients(model, loss, batch)
    assert_moments(sample_moments(probe, [batch])[0], G, rel)
    assert_class_moments(class_moments(probe, [batch]), G, batch[1], rel)


@pytest.mark.parametrize("name", ["mlp", "convolution"])
def test_moments_agree_with_opacus(name):
    opacus = pytest.importorskip("opacus")
    build, make_batch = MODELS[name]
    model, (x, y) = build().to(DOUBLE), make_batch(DOUBLE)
    (found,) = sample_moments(Probe(model, nn.CrossEntropyLoss()), [(x, y)])
    if name == "mlp":
        model[3].inplace = False  # Opacus does not support it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = opacus.GradSampleModule(model, loss_reduction="sum")
        cross_entropy(wrapped(x), y).sum().backward()
    assert_moments(found, torch.cat([p.grad_sample.flatten(1) for p in model.parameters()], dim=1), 1e-10)


def test_batches_may_be_nested_dictionaries():
    x, y = images(DOUBLE)
    model = convolution().to(DOUBLE)
    batch = {"x": x, "more": [{"y": y}], "scale": torch.tensor(2.0, dtype=DOUBLE), "name": "digits"}

    def losses(model, batch):
        return batch["scale"] * cross_entropy(model(batch["x"]), batch["more"][0]["y"])

    (found,) = sample_moments(Probe(model, None, sample_losses=losses), [batch])
    assert_moments(found, 2.0 * reference.sample_gradients(model, cross_entropy, (x, y)), 1e-10)


def test_inputs_of_a_class_may_be_dictionaries():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3, dtype=DOUBLE)

        def forward(self, x):
            return self.layer(x["a"] + x["b"])

    model, batches = Sum(), [vectors(DOUBLE), vectors(DOUBLE)]
    found = class_moments(Probe(model, nn.CrossEntropyLoss()), [({"a": x, "b": x}, y) for x, y in batches])
    G = torch.cat([reference.sample_gradients(model.layer, cross_entropy, (2 * x, y)) for x, y in batches])
    assert_class_moments(found, G, torch.cat([y for _, y in batches]), 1e-10)


def test_the_number_of_chunks_does_not_matter(monkeypatch):
    model, batch = convolution().to(DOUBLE), images(DOUBLE, num=11)
    probe = Probe(model, nn.CrossEntropyLoss())
    (whole,), norms = sample_moments(probe, [batch]), class_moments(probe, [batch])
    monkeypatch.setattr(per_sample, "CHUNK_BYTES", 1)
    monkeypatch.setattr(per_sample, "BLOCK", 8)
    (parts,), again = sample_moments(probe, [batch]), class_moments(probe, [batch])
    assert vars(parts) == pytest.approx(vars(whole), rel=1e-12)
    assert [vars(one) for one in again] == [pytest.approx(vars(one), rel=1e-12) for one in norms]


def test_a_small_variance_about_a_large_mean_loses_no_digits():
    """The variance is a millionth of the mean square."""
    model = nn.Linear(3, 1, dtype=DOUBLE)
    x = 1.0 + 1e-3 * torch.randn(64, 3, dtype=DOUBLE)
    (found,) = sample_moments(Probe(model, lambda output, target: output.squeeze(1)), [(x, torch.zeros(64))])
    expected = 64 * (x.mean(0) ** 2 / x.var(0)).sum()
    assert found.variance == pytest.approx(float(x.var(0).sum()), rel=1e-9)
    assert found.num_live == 3  # the bias has gradient 1 for every sample
    assert found.t_sq_sum == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("kind", [nn.Linear, nn.Bilinear], ids=["closed form", "vmap"])
def test_a_coordinate_without_variance_and_a_dead_one_are_left_out(kind):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1, bias=False) if kind is nn.Linear else nn.Bilinear(3, 1, 1, bias=False)

        def forward(self, x):
            return self.layer(x) if kind is nn.Linear else self.layer(x, torch.ones_like(x[:, :1]))

    probe = Probe(Model(), lambda output, target: output.squeeze(1))
    dead = torch.tensor([[3.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    (found,) = sample_moments(probe, [(dead, torch.zeros(2))])
    assert (found.num_parameters, found.num_live, found.t_sq_sum) == (3, 2, 4.0)
    constant = torch.tensor([[3.0, 0.1, 0.0], [1.0, 0.1, 0.0], [2.0, 0.1, 0.0]])
    (found,) = sample_moments(probe, [(constant, torch.zeros(3))])
    assert (found.num_live, found.t_sq_sum) == (1, pytest.approx(12.0))


class Largest(TorchDispatchMode):
    """The number of values in the largest tensor created inside."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def test_no_gradient_of_a_single_sample_is_formed_for_linear_layers():
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    batch = torch.randn(32, 20), torch.randint(10, (32,))
    probe = Probe(model, nn.CrossEntropyLoss())
    with Largest() as largest:
        sample_moments(probe, [batch])
        class_moments(probe, [batch])
    assert largest.numel <= 64 * 64  # one weight; 32 of them would be 131,072 values


def test_single_samples_are_skipped_with_one_warning():
    probe = Probe(mlp(), nn.CrossEntropyLoss())
    batches = [vectors(torch.float32), vectors(torch.float32, 1)]
    with pytest.warns(HeldinWarning, match="1 of 2 batches skipped") as shown:
        found = [sample_moments(probe, batches), sample_moments(probe, batches)]
    assert len(shown) == 1
    assert [len(one) for one in found] == [1, 1]
    with pytest.raises(BatchesError, match="At least one batch should have 2 samples"):
        sample_moments(probe, batches[1:])
    with pytest.raises(BatchesError, match="At least one class should have 2 samples"):
        class_moments(probe, batches[1:])


def test_rows_of_layers_are_not_verified_on_a_batch_of_one_sample():
    model, batches = Reversed().to(DOUBLE), [vectors(DOUBLE, 1), vectors(DOUBLE)]
    found = class_moments(Probe(model, nn.CrossEntropyLoss()), batches)
    G = torch.cat([reference.sample_gradients(model, cross_entropy, batch) for batch in batches])
    assert_class_moments(found, G, torch.cat([y for _, y in batches]), 1e-10)


@pytest.mark.parametrize("num", [2, 3])
def test_classes_with_one_sample_and_ignored_samples_are_left_out(num):
    x = torch.randn(num + 3, 6, dtype=DOUBLE)
    y = torch.tensor([0] * num + [1, -100, -100])
    found = class_moments(Probe(mlp().to(DOUBLE), nn.CrossEntropyLoss()), [(x[:2], y[:2]), (x[2:], y[2:])])
    assert [(one.label, one.num_samples) for one in found] == [(0, num)]


@pytest.mark.parametrize("name", ["mlp", "convolution"])
def test_ignored_samples_are_left_out_of_every_moment(name):
    model, make = MODELS[name]
    model = model().to(DOUBLE)
    x, y = make(DOUBLE)
    some, one = y.clone(), y.clone()
    some[::4], one[1:] = -100, -100
    probe, kept = Probe(model, nn.CrossEntropyLoss()), some >= 0
    G = reference.sample_gradients(model, cross_entropy, (x[kept], y[kept]))
    assert_class_moments(class_moments(probe, [(x, some), (x, torch.full_like(y, -100))]), G, y[kept], 1e-10)
    with pytest.warns(HeldinWarning, match="2 of 3 batches skipped"):
        (found,) = sample_moments(probe, [(x, some), (x, one), (x, torch.full_like(y, -100))])
    assert found.num_samples == int(kept.sum())
    assert_moments(found, G, 1e-10)


def test_a_model_that_writes_to_its_inputs_gets_the_same_inputs_each_time():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.shift = nn.Linear(6, CLASSES, dtype=DOUBLE), nn.Parameter(torch.zeros(6, dtype=DOUBLE))

        def forward(self, x):
            x -= 0.5
            return self.layer(x + self.shift)  # one parameter in closed form, one by vmap

    model, (x, y) = InPlace(), vectors(DOUBLE)
    (found,) = sample_moments(Probe(model, nn.CrossEntropyLoss()), [(x, y)])
    assert_moments(found, reference.sample_gradients(model, cross_entropy, (x.clone(), y)), 1e-10)


def test_batch_statistics_are_refused():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten())
    probe = Probe(model, nn.CrossEntropyLoss())
    with pytest.raises(UnmeasurableError, match="BatchNorm2d '1'"):
        sample_moments(probe, [images(torch.float32)])
    with pytest.raises(UnmeasurableError, match="running statistics"):
        class_moments(probe, [images(torch.float32)])


def test_a_batch_without_tensors_per_sample_is_refused():
    class Opaque:
        x, y = images(torch.float32)

    def losses(model, batch):
        return cross_entropy(model(batch.x), batch.y)

    with pytest.raises(BatchesError, match="Found none in a Opaque"):
        sample_moments(Probe(convolution(), None, sample_losses=losses), [Opaque()])


@pytest.mark.parametrize("measure", [sample_moments, class_moments])
@pytest.mark.parametrize("broken", [False, True], ids=["measured", "raised"])
def test_measuring_changes_nothing(measure, broken):
    model, batches = with_batch_norm(), [images(torch.float32), images(torch.float32)]
    cross_entropy(model(batches[0][0]), batches[0][1]).sum().backward()
    if broken:
        batches[1][0][-1] = math.nan
    with Unchanged(model), pytest.raises(NotFiniteError) if broken else nullcontext():
        measure(Probe(model, nn.CrossEntropyLoss()), batches)


def test_the_error_of_a_model_that_cannot_run_on_one_sample_is_raised():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv1d(1, 3, 6)

        def forward(self, x):
            if len(x) == 1:
                raise KeyError("needs two")
            return self.layer(x[:, None]).squeeze(2)

    model = Broken()
    hooks = [len(m._forward_hooks) for m in model.modules()]
    with pytest.raises(KeyError, match="needs two"):
        sample_moments(Probe(model, nn.CrossEntropyLoss()), [vectors(torch.float32)])
    assert [len(m._forward_hooks) for m in model.modules()] == hooks


class Identity(nn.Module):
    """The gradient of a sample is the sample itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False, dtype=DOUBLE)

    def forward(self, x):
        return self.layer(x)


def output_as_loss(output, target):
    return output.squeeze(1)


def moments_by_class(batches, model=None):
    batches = [(torch.tensor(x, dtype=DOUBLE), torch.tensor(y)) for x, y in batches]
    return class_moments(Probe(model or Identity(), output_as_loss), batches)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_class_moments_worked_by_hand_at_every_scale(scale):
    """Class 7 has (3, 4) and (0, 2): norms 5 and 2, sum (3, 6), directions (0.6, 0.8) and (0, 1)."""
    first, second = [[3.0 * scale, 4.0 * scale], [9.0, 9.0]], [[0.0, 2.0 * scale], [8.0, 8.0]]
    other, found = moments_by_class([(first, [7, 1]), (second, [7, 1])])
    assert (other.label, found.label, found.num_samples, found.num_units) == (1, 7, 2, 2)
    assert found.norm_sum == pytest.approx(7.0 * scale, rel=1e-12, abs=0)
    assert (found.norm_sq_sum, found.sum_sq) == pytest.approx((29.0 * scale**2, 45.0 * scale**2), rel=1e-12, abs=0)
    assert found.unit_sum_sq == pytest.approx(3.6)


def test_a_gradient_of_zero_counts_as_a_sample_without_a_direction():
    (found,) = moments_by_class([([[3.0, 4.0], [0.0, 0.0], [-6.0, -8.0]], [0, 0, 0])])
    assert (found.num_samples, found.num_units) == (3, 2)
    assert (found.norm_sum, found.sum_sq) == pytest.approx((15.0, 25.0))
    assert found.unit_sum_sq == pytest.approx(0.0, abs=1e-24)
    (nothing,) = moments_by_class([([[0.0, 0.0], [0.0, 0.0]], [0, 0])])
    assert (nothing.num_samples, nothing.num_units, nothing.sum_sq, nothing.unit_sum_sq) == (2, 0, 0.0, 0.0)


def test_a_class_is_passed_through_the_model_in_parts_no_larger_than_a_batch():
    model, sizes = Identity(), []
    model.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    found = moments_by_class([(torch.randn(6, 2).tolist(), [0, 0, 0, 0, 0, 1]) for _ in range(4)], model)
    assert [one.num_samples for one in found] == [20, 4]
    assert max(sizes) == 6


def test_a_parameter_may_take_part_in_some_batches_only():
    class Halves(nn.Module):
        """Inputs of different length use different weights."""

        def __init__(self):
            super().__init__()
            self.long, self.short = nn.Linear(3, 1, bias=False), nn.Linear(2, 1, bias=False)

        def forward(self, x):
            return (self.long if x.shape[1] == 3 else self.short)(x)

    long, short = (torch.ones(2, 3), torch.zeros(2).long()), (2.0 * torch.ones(3, 2), torch.zeros(3).long())
    (found,) = class_moments(Probe(Halves(), output_as_loss), [long, short, long])
    assert found.sum_sq == pytest.approx(3 * 4.0**2 + 2 * 6.0**2)  # (4, 4, 4) and (6, 6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_integers_of_every_type_are_classes(dtype):
    batch = torch.ones(3, 2, dtype=DOUBLE), torch.tensor([2, 0, 2], dtype=dtype)
    (found,) = class_moments(Probe(Identity(), output_as_loss), [batch])
    assert (found.label, found.num_samples) == (2, 2)


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        (torch.zeros(4, 3), r"targets of shape \(4, 3\) and type torch.float32"),
        (torch.zeros(4, 1).long(), r"targets of shape \(4, 1\) and type torch.int64"),
        (torch.zeros(4), r"targets of shape \(4,\) and type torch.float32"),
        (torch.zeros(4, dtype=torch.bool), r"targets of shape \(4,\) and type torch.bool"),
        ([0, 1, 2, 0], "targets in a list"),
    ],
    ids=["vectors", "column", "real numbers", "booleans", "list"],
)
def test_targets_that_are_not_classes_are_refused_with_the_remedy(targets, found):
    probe = Probe(mlp(), nn.CrossEntropyLoss())
    with pytest.raises(UnmeasurableError, match=f"one integer class per sample.*Found {found}.*give the classes as"):
        class_moments(probe, [(torch.randn(4, 6), targets)])


def test_batches_that_are_not_pairs_have_no_classes():
    probe = Probe(mlp(), None, sample_losses=lambda model, batch: model(batch["x"]).sum(1))
    with pytest.raises(UnmeasurableError, match="Found a dict with the keys 'x'"):
        class_moments(probe, [{"x": torch.randn(4, 6)}])


class Complex(nn.Module):
    """A complex weight; `Real` holds its real and imaginary parts."""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(torch.view_as_complex(values.clone()))

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).abs()


class Real(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.clone())

    def forward(self, x):
        return torch.hypot(x @ self.weight[..., 0], x @ self.weight[..., 1])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_complex_parameter_counts_as_two_real_ones(one_by_one):
    values, batch = torch.randn(6, 3, 2, dtype=DOUBLE), vectors(DOUBLE)
    probe = Probe(Complex(values), nn.CrossEntropyLoss())
    if one_by_one:
        probe.warn_once.topics.add(per_sample.ONE_BY_ONE)
    (found,) = sample_moments(probe, [batch])
    assert_moments(found, reference.sample_gradients(Real(values), cross_entropy, batch), 1e-10)


@pytest.mark.filterwarnings("ignore:Gradients of single samples are computed one sample at a time")
def test_a_sample_whose_loss_does_not_depend_on_the_model_has_a_gradient_of_zero():
    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, dtype=DOUBLE))

        def forward(self, x):
            return x @ self.weight

    def losses(model, batch):
        return torch.stack([model(row[None]).sum() if bool(row[0] > 0) else row.sum() for row in batch])

    x = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [2.0, 5.0]], dtype=DOUBLE)
    (found,) = sample_moments(Probe(Weight(), None, sample_losses=losses), [x])
    assert_moments(found, torch.tensor([[1.0, 2.0], [0.0, 0.0], [2.0, 5.0]], dtype=DOUBLE), 1e-12)


def test_several_losses_for_one_sample_are_refused_with_the_remedy():
    def losses(model, batch):
        found = cross_entropy(model(batch[0]), batch[1])
        return found if len(found) == NUM else found.repeat_interleave(2)

    probe = Probe(convolution(), None, sample_losses=losses)
    with pytest.raises(LossError, match=r"one value for each of the 1 samples of a batch. Found shape \(2,\)"):
        sample_moments(probe, [images(torch.float32)])


@pytest.mark.parametrize("value", [1.0, 0.1, 1e-10, 1e10])
@pytest.mark.parametrize("kind", [nn.Linear, nn.Conv1d], ids=["closed form", "vmap"])
def test_equal_gradients_in_single_precision_have_no_variance(kind, value):
    model = nn.Linear(1, 1, bias=False) if kind is nn.Linear else nn.Conv1d(1, 1, 1, bias=False)
    x = torch.full((50, 1) if kind is nn.Linear else (50, 1, 1), value)
    (found,) = sample_moments(Probe(model, lambda output, target: 0.3 * output.flatten()), [(x, torch.zeros(50))])
    assert (found.num_live, found.t_sq_sum) == (0, 0.0)
    assert found.mean_sq > 0.0


class KeepsMean(nn.Module):
    """A loss that stores a tensor in each pass, and reads it in the next one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, outputs, targets):
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        shifted = losses - 0.0 * self.mean
        self.mean = losses.detach().mean()
        return shifted


def test_a_loss_that_stores_a_tensor_is_computed_by_vmap_as_one_that_does_not():
    model, batches = Stores(), [(torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(3)]
    found = [heldin.measure(model, loss, batches, signals="gsnr") for loss in (KeepsMean(), nn.CrossEntropyLoss())]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
