"""How gradients are held: in full, in bfloat16, or as a sketch; compared with a slow projection and with real data."""

from __future__ import annotations

import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from tests.states import Unchanged
from torch import nn
from torch.nn import functional as F

import heldin
from heldin import EarlyStopping, Probe, Sketch
from heldin.errors import ArgumentError, HeldinWarning, UnmeasurableError
from heldin.probing.rescaling import RESCALINGS
from heldin.probing.storage import ReducedGradient, _places, _signs

LOSS = nn.CrossEntropyLoss()
MEMORIES = ["bf16", Sketch(16)]


def reference_matrix(sketch, sizes):
    """The projection as a dense matrix (size, d): one sign in one row of each column."""
    signs = _signs(sketch, torch.device("cpu"), torch.float64)
    columns = []
    for number, size in enumerate(sizes):
        pieces = _places(sketch, number, size)
        for i in range(size):
            shift, offset, sign = pieces[i // sketch.size]
            column = torch.zeros(sketch.size, dtype=torch.float64)
            column[(i % sketch.size + shift) % sketch.size] = sign * signs[offset + i % sketch.size]
            columns.append(column)
    return torch.stack(columns, dim=1)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(2, 17), st.integers(0, 3))
def test_a_sketch_is_the_product_with_a_sparse_matrix(sizes, size, seed):
    sketch = Sketch(size, seed)
    parts = [torch.randn(number, dtype=torch.float64) for number in sizes]
    found = torch.zeros(size, dtype=torch.float64)
    for number, part in enumerate(parts):
        sketch.add(found, part, number)
    matrix = reference_matrix(sketch, sizes)
    assert torch.equal(matrix.abs().sum(0), torch.ones(sum(sizes), dtype=torch.float64))
    assert torch.allclose(found, matrix @ torch.cat(parts))


def digits(num_batches=5, size=64):
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images))[: num_batches * size].view(num_batches, size)
    return [(images[index], labels[index]) for index in order]


def trained_network(batches, steps=20):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 60), nn.ReLU(), nn.Linear(60, 40), nn.ReLU(), nn.Linear(40, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def relative_errors(gradients, sketch_size, num_seeds):
    """The relative error of each distance between rows of `gradients`, for many projections."""
    exact = torch.cdist(gradients, gradients, compute_mode="donot_use_mm_for_euclid_dist")
    pairs = torch.triu_indices(len(gradients), len(gradients), 1)
    errors = []
    for seed in range(num_seeds):
        sketches = torch.zeros(len(gradients), sketch_size, dtype=torch.float64)
        for target, row in zip(sketches, gradients, strict=True):
            Sketch(sketch_size, seed).add(target, row, 0)
        found = torch.cdist(sketches, sketches, compute_mode="donot_use_mm_for_euclid_dist")
        errors.append((found / exact - 1)[pairs[0], pairs[1]])
    return torch.cat(errors)


def test_the_error_of_distances_between_real_gradients_is_the_stated_one():
    batches = digits()
    gradients = Probe(trained_network(batches), LOSS).gradients(batches).matrix()  # (5, 6750)
    for size in (64, 512):
        errors = relative_errors(gradients, size, num_seeds=100)
        assert float(errors.square().mean().sqrt()) <= 1.15 * Sketch(size).expected_error
        assert abs(float(errors.mean())) <= 2 * Sketch(size).expected_error ** 2 + 0.2 * Sketch(size).expected_error


def test_the_error_does_not_grow_for_gradients_with_a_period():
    for period in (1, 32, 64):  # each divides the size
        rows = torch.randn(3, period).double().repeat(1, 4096 // period) + 0.1 * torch.randn(3, 4096).double()
        errors = relative_errors(rows, 64, num_seeds=200)
        assert float(errors.square().mean().sqrt()) <= 1.2 * Sketch(64).expected_error


def test_the_default_sketch_is_within_a_percent_on_a_network_of_real_size():
    batches = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    signals = ["gradient_disparity", "gradient_variance"]
    full = heldin.measure(model, LOSS, batches, signals=signals)
    sketch = heldin.measure(model, LOSS, batches, signals=signals, memory="sketch")
    assert sketch["gradient_disparity"] == pytest.approx(full["gradient_disparity"], rel=4 * Sketch().expected_error)
    assert sketch["gradient_variance"] == pytest.approx(full["gradient_variance"], rel=8 * Sketch().expected_error)
    assert sketch != full
    half = heldin.measure(model, LOSS, batches, signals=signals, memory="bf16")
    assert half == pytest.approx(full, rel=1e-3)
    assert half != full


def test_gradients_of_at_most_as_many_numbers_are_held_in_full():
    model, batches = nn.Linear(64, 10), digits()
    assert heldin.measure(model, LOSS, batches, memory=Sketch(650)) == heldin.measure(model, LOSS, batches)
    assert heldin.measure(model, LOSS, batches, memory=Sketch(649)) != heldin.measure(model, LOSS, batches)


def words():
    model = nn.Sequential(nn.Embedding(7, 64, sparse=True), nn.Flatten(), nn.Linear(64, 10))
    return model, [(torch.randint(7, (8, 1)), torch.randint(10, (8,))) for _ in range(3)]


def tied():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
    model[1].weight = model[0].weight
    return model, digits(3)


class OfComplexNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 10, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.weight).abs()


def partly_frozen():
    model = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    model[0].requires_grad_(False)
    return model, digits(3)


MODELS = {
    "sparse embedding": words,
    "tied weights": tied,
    "frozen layer": partly_frozen,
    "complex": lambda: (OfComplexNumbers(), digits(3)),
    "double": lambda: (nn.Linear(64, 10).double(), [(x.double(), y) for x, y in digits(3)]),
    "bfloat16": lambda: (nn.Linear(64, 10).bfloat16(), [(x.bfloat16(), y) for x, y in digits(3)]),
}


@pytest.mark.parametrize("rescale", RESCALINGS)
@pytest.mark.parametrize("name", MODELS)
def test_reduced_gradients_are_those_of_the_full_ones(name, rescale):
    model, batches = MODELS[name]()
    full = Probe(model, LOSS).gradients(batches, rescale)
    half = Probe(model, LOSS, memory="bf16").gradients(batches, rescale)
    assert all(part.dtype is torch.bfloat16 for row in half.rows for part in row)
    assert torch.allclose(half.matrix(), full.matrix(), rtol=2**-7, atol=1e-30)
    sketch = Sketch(16)
    reduced = Probe(model, LOSS, memory=sketch).gradients(batches, rescale)
    expected = full.matrix() @ reference_matrix(sketch, full.sizes).T
    assert torch.allclose(reduced.matrix(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert reduced.num_parameters == full.num_parameters
    assert reduced.gram().num_parameters == full.num_parameters


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_a_whole_gradient_never_exists(memory, monkeypatch):
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)), nn.Linear(64, 10))
    received, most = [], []
    add = ReducedGradient.add

    def counted(self, number, part):
        received.append(weakref.ref(part.untyped_storage()))
        most.append(sum(one() is not None for one in received))
        add(self, number, part)

    monkeypatch.setattr(ReducedGradient, "add", counted)
    heldin.measure(model, LOSS, digits(2), memory=memory)
    assert len(received) == 2 * 18
    assert max(most) <= 2


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_measuring_leaves_training_unchanged(memory):
    model, batches = nn.Sequential(nn.Linear(64, 20), nn.BatchNorm1d(20), nn.Linear(20, 10)), digits()
    calls = []
    model[0].weight.register_hook(calls.append)
    model[0].weight.register_post_accumulate_grad_hook(calls.append)
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    calls.clear()
    with Unchanged(model):
        heldin.measure(model, LOSS, batches, memory=memory)
        with pytest.raises(RuntimeError, match="interrupted"):
            heldin.measure(Interrupted(model), LOSS, batches, memory=memory)
    assert calls == []
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    assert len(calls) == 2


class Interrupted(nn.Module):
    """Raises in the middle of the backward pass."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        hidden = self.model[0](x)
        hidden.register_hook(self._interrupt)
        return self.model[2](self.model[1](hidden))

    def _interrupt(self, gradient):
        raise RuntimeError("interrupted")


def test_a_stopper_measures_with_sketches_of_some_layers():
    batches = digits()
    model = trained_network(batches)
    stopper = EarlyStopping(model, LOSS, memory=Sketch(512), layers=["0", "4.bias"])
    stopper.step(batches)
    layers = Probe(model, LOSS, layers=["0", "4.bias"]).gradients(batches)
    assert layers.num_parameters == 64 * 60 + 60 + 10
    exact = EarlyStopping(model, LOSS, layers=["0", "4.bias"])
    exact.step(batches)
    found = stopper.history[0].values["gradient_disparity"] / exact.history[0].values["gradient_disparity"]
    assert 0 < abs(found - 1) < 4 * Sketch(512).expected_error
    with pytest.warns(heldin.errors.HeldinWarning, match=r"memory='Sketch\(size=512, seed=0\)'.*new ones"):
        EarlyStopping(model, LOSS).load_state_dict(stopper.state_dict())


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("0", ["0.weight", "0.bias"]),
        (["0.bias", "4"], ["0.bias", "4.weight", "4.bias"]),
        ("*.bias", ["0.bias", "2.bias", "4.bias"]),
        ("[24]", ["2.weight", "2.bias", "4.weight", "4.bias"]),
        (None, ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]),
    ],
    ids=str,
)
def test_layers_select_parameters_by_name(layers, expected):
    model = trained_network([], steps=0)
    named = dict(model.named_parameters())
    found = Probe(model, LOSS, layers=layers).measured_parameters()
    assert [id(parameter) for parameter in found] == [id(named[name]) for name in expected]


def test_the_gradient_of_layers_is_a_part_of_the_whole_one():
    batches = digits()
    model = trained_network(batches)
    whole = Probe(model, LOSS).gradients(batches).matrix()
    assert torch.equal(Probe(model, LOSS, layers="4").gradients(batches).matrix(), whole[:, -410:])


def test_arguments_that_cannot_be_used_are_refused():
    model, batches = nn.Sequential(nn.Linear(64, 20), nn.Linear(20, 10)), digits()
    with pytest.raises(ArgumentError, match=r"`memory` should be one of 'full', 'bf16', 'sketch'. .*'half'"):
        heldin.measure(model, LOSS, batches, memory="half")
    with pytest.raises(ArgumentError, match=r"nothing in Sequential is called 'head'"):
        EarlyStopping(model, LOSS, layers=["1", "head"])
    model[0].requires_grad_(False)
    with pytest.raises(ArgumentError, match=r"all in \['0'\] have requires_grad=False"):
        EarlyStopping(model, LOSS, layers="0")
    with pytest.raises(UnmeasurableError, match=r"'evidence_based'.*whole model.*Leave `layers` out"):
        heldin.measure(model, LOSS, batches, signals="evidence_based", layers="1")
    with pytest.raises(ArgumentError, match=r"`size` should be an integer of at least 2"):
        Sketch(1)


def test_the_stated_error():
    assert Sketch().expected_error == pytest.approx(0.00276, rel=1e-2)
    assert Sketch(200).expected_error == math.sqrt(1 / 400)


@pytest.mark.parametrize("signal", ["cosine", "inner_product", "sign", "gradient_confusion", "noise_scale"])
def test_a_sketch_warns_about_signals_of_inner_products(signal):
    model = nn.Linear(20, 10)
    batches = [(torch.randn(8, 20), torch.randint(10, (8,))) for _ in range(3)]
    with pytest.warns(HeldinWarning, match=r"sketches of 64 numbers have an error: 0\.12 in a cosine"):
        heldin.measure(model, LOSS, batches, signals=signal, memory=Sketch(64))
    heldin.measure(model, LOSS, batches, signals=signal, memory=Sketch(1000))  # held in full
    heldin.measure(model, LOSS, batches, memory=Sketch(64))  # distances
