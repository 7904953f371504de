"""Gradient disparity, within the training batches and between training and validation."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import heldin
from heldin import GradientDisparity, TrainValDisparity
from heldin.errors import ArgumentError
from heldin.gradients import Gradients
from heldin.signals import reference

TRIANGLE = [(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]

LINEAR_BATCHES = [
    (torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.zeros(2)),
    (torch.tensor([[4.0, 0.0], [1.0, 1.0]]), torch.zeros(2)),
    (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.zeros(2)),
]


def disparity(vectors, signal=GradientDisparity()):  # noqa: B008
    matrix = torch.stack([torch.as_tensor(vector, dtype=torch.float64) for vector in vectors])
    rows = tuple((row,) for row in matrix)
    return signal.read(Gradients(rows, (1.0,) * len(matrix), (matrix.shape[1],), len(matrix)).gram())


def linear_model():
    """loss_i = x_i . w at w = (1, 1)."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def loss_is_output(output, target):
    return output.squeeze(1)


@pytest.mark.parametrize(
    ("vectors", "signal", "expected"),
    [
        (TRIANGLE, GradientDisparity(), 5.495094),
        (TRIANGLE, GradientDisparity(normalize=True), 3.885618),
        (TRIANGLE[:2], GradientDisparity(), 1.414214),
    ],
    ids=["three vectors", "normalised by sqrt(d)", "two vectors"],
)
def test_worked_example(vectors, signal, expected):
    assert disparity(vectors, signal) == pytest.approx(expected, abs=1e-6)


def test_normalize_is_true_or_false():
    with pytest.raises(ArgumentError, match="`normalize` should be True or False. Found `normalize = 'no'`"):
        GradientDisparity(normalize="no")


@pytest.mark.parametrize(
    ("rescale", "expected"),
    [("none", 1.688165), ("std_detached", 1.130810), ("std", 7 / 3)],
)
def test_worked_example_of_each_rescaling(rescale, expected):
    found = heldin.measure(linear_model(), loss_is_output, LINEAR_BATCHES, signals=GradientDisparity(rescale=rescale))
    assert found["gradient_disparity"] == pytest.approx(expected, abs=1e-5)


def test_worked_example_of_grad_std():
    class Table(nn.Module):
        """The gradient of batch j is the j-th vector."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))

        def forward(self, x):
            return x @ self.weight

    batches = [(torch.tensor([vector, vector], dtype=torch.float64), torch.zeros(2)) for vector in TRIANGLE]
    signal = GradientDisparity(rescale="grad_std")
    found = heldin.measure(Table(), lambda output, target: output, batches, signals=signal)
    assert found["gradient_disparity"] == pytest.approx(5.520144, abs=1e-6)


def mlp(dtype):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).to(dtype)


def convolution(dtype):
    torch.manual_seed(2)
    layers = [
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(3),
    ]
    model = nn.Sequential(*layers).to(dtype)
    model(torch.zeros(2, 6, dtype=dtype))
    return model


def classification_batches(dtype, num=5, size=12):
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(size, 6, generator=generator).to(dtype), torch.randint(3, (size,), generator=generator))
        for _ in range(num)
    ]


def pairs_of_all_axes():
    """Every rescaling at every scale. Models and precisions alternate: each occurs with every rescaling and scale."""
    rescalings, scales = ("std", "std_detached", "minmax", "none", "grad_std", "pooled_std"), (1e-10, 1.0, 1e4, 1e10)
    for (i, rescale), (j, scale) in itertools.product(enumerate(rescalings), enumerate(scales)):
        yield rescale, scale, (mlp, convolution)[(i + j) % 2], (torch.float32, torch.float64)[(i + j // 2) % 2]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("rescale", "scale", "build", "dtype"), [*pairs_of_all_axes()])
def test_measured_value_equals_the_reference(rescale, scale, build, dtype):
    model, batches = build(dtype), classification_batches(dtype)

    def loss(output, target):
        return scale * F.cross_entropy(output, target, reduction="none")

    found = heldin.measure(model, loss, batches, signals=GradientDisparity(rescale=rescale))
    expected = reference.gradient_disparity(reference.batch_gradients(model, loss, batches, rescale))
    assert found["gradient_disparity"] == pytest.approx(expected, rel=1e-5 if dtype is torch.float32 else 1e-10, abs=0)


@pytest.mark.parametrize("rescale", ["std", "none"])
def test_train_val_disparity_equals_the_reference(rescale):
    model, batches = mlp(torch.float64), classification_batches(torch.float64, num=7)
    train, val = batches[:4], batches[4:]
    signals = [TrainValDisparity(rescale=rescale), GradientDisparity(rescale=rescale)]
    found = heldin.measure(model, nn.CrossEntropyLoss(), train, against=val, signals=signals)

    def loss(output, target):
        return F.cross_entropy(output, target, reduction="none")

    train_rows, val_rows = (reference.batch_gradients(model, loss, part, rescale) for part in (train, val))
    assert found["train_val_disparity"] == pytest.approx(reference.train_val_disparity(train_rows, val_rows), rel=1e-10)
    assert found["gradient_disparity"] == pytest.approx(reference.gradient_disparity(train_rows), rel=1e-10)


def test_worked_example_of_the_disparity_between_two_sets():
    rows = torch.tensor([(0.0, 0.0), (3.0, 4.0), (0.0, 4.0)])
    assert reference.train_val_disparity(rows[:2], rows[2:]) == 3.5


def test_batches_of_one_sample_pool_their_losses():
    model = mlp(torch.float64)
    pool = classification_batches(torch.float64, num=40, size=1)
    signal = GradientDisparity(rescale="pooled_std")
    found = heldin.measure(model, nn.CrossEntropyLoss(), pool[:20], pool=pool, signals=signal)

    def loss(output, target):
        return F.cross_entropy(output, target, reduction="none")

    expected = reference.gradient_disparity(reference.batch_gradients(model, loss, pool[:20], "pooled_std", pool))
    assert found["gradient_disparity"] == pytest.approx(expected, rel=1e-10)


def test_gradients_rescaled_by_std_do_not_change_the_scale_of_the_losses():
    probe = heldin.Probe(linear_model(), loss_is_output)
    for row in probe.gradients(LINEAR_BATCHES, "std").matrix():
        assert float(row.sum()) == pytest.approx(0.0, abs=1e-6)  # g . w = 0 at w = (1, 1)


def test_worked_example_of_minmax():
    batch = (torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]]), torch.zeros(3))
    (row,) = heldin.Probe(linear_model(), loss_is_output).gradients([batch], "minmax").matrix()
    assert row.tolist() == pytest.approx([-4 / 27, 4 / 27])


VECTORS = st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4), min_size=2, max_size=6)


@given(VECTORS, st.floats(0.0, 2 * math.pi), st.integers(-30, 30))
def test_does_not_depend_on_order_or_rotation_and_scales_with_the_gradients(vectors, angle, exponent):
    G = torch.tensor(vectors, dtype=torch.float64)
    rotation = torch.eye(4, dtype=torch.float64)
    rotation[0, 0] = rotation[2, 2] = math.cos(angle)
    rotation[0, 2], rotation[2, 0] = -math.sin(angle), math.sin(angle)
    value = disparity(G)
    assert disparity(vectors[::-1]) == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert disparity(G @ rotation) == pytest.approx(value, rel=1e-7, abs=1e-6)
    assert disparity(G * 2.0**exponent) == pytest.approx(value * 2.0**exponent, rel=1e-12)


@given(VECTORS)
def test_equals_the_reference_on_any_gradients(vectors):
    G = torch.tensor(vectors, dtype=torch.float64)
    spread = float((G - G.mean(0)).norm())
    assert disparity(G) == pytest.approx(reference.gradient_disparity(G), rel=1e-6, abs=1e-7 * spread)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), st.integers(2, 7))
def test_identical_batches_have_disparity_exactly_zero(vector, num):
    assert disparity([vector] * num) == 0.0


def test_unknown_rescaling_raises_with_the_closest_name():
    with pytest.raises(ArgumentError, match="std_detached"):
        GradientDisparity(rescale="std_detatched")
