"""The evidence-based criterion and the gradient signal-to-noise ratio."""

import math
from statistics import fmean

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from heldin import EarlyStopping, EvidenceBased, GradientSNR
from heldin.errors import BatchesError
from heldin.probing import Probe
from heldin.probing.per_sample import sample_moments
from heldin.rules import Level, replay
from heldin.signals import reference

TRIANGLE = [(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]
SUMS = GradientSNR(ratio_of_sums=True)
ROWS = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=n, max_size=n)
)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([TRIANGLE], -49.078947),
        ([[2.0, 0.0]], 0.0),
        ([[1.0, -1.0]], 1.0),
        ([[3.0, 1.0]], -3.0),
        ([[3.0, 1.0], [1.0, -1.0]], -1.0),
        ([[(3.0, 0.0), (1.0, 0.0)]], -3.0),
        ([[(3.0, 7.0), (1.0, 7.0)]], -3.0),
        ([[2.0, 2.0]], -math.inf),
        ([[0.0, 0.0]], math.nan),
    ],
    ids=[
        "three vectors",
        "boundary",
        "noise alone",
        "signal",
        "mean over batches",
        "zero coordinates do not count",
        "constant coordinates do not count",
        "no variance",
        "no gradient",
    ],
)
def test_worked_examples_of_evidence(moments_of, batches, expected):
    assert EvidenceBased().read(moments_of(*batches)) == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("signal", "batches", "expected"),
    [
        (GradientSNR(), [TRIANGLE], 25.039474),
        (SUMS, [TRIANGLE], (1 + 100 / 9) / (38 / 3 + 2 / 9)),
        (GradientSNR(), [[3.0, 1.0], [1.0, -1.0]], 2.0),
        (GradientSNR(), [[(2.0, 0.0), (2.0, 0.0)]], math.inf),
        (SUMS, [[(2.0, 0.0), (2.0, 0.0)]], math.inf),
        (GradientSNR(), [[(0.0, 0.0), (0.0, 0.0)]], math.nan),
        (SUMS, [[(0.0, 0.0), (0.0, 0.0)]], math.nan),
    ],
)
def test_worked_examples_of_gsnr(moments_of, signal, batches, expected):
    assert signal.read(moments_of(*batches)) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_the_rule_stops_above_zero_and_not_at_zero(moments_of):
    values = [EvidenceBased().read(moments_of(gradients)) for gradients in ([3.0, 1.0], [2.0, 0.0], [1.0, -1.0])]
    assert EvidenceBased.rule == Level(0.0)
    assert replay(EvidenceBased.rule, values).epoch == 2


def test_a_bias_whose_gradient_is_constant_does_not_stop_training():
    """Under an absolute loss the gradient of the bias is 1 for every sample: it has no t statistic."""
    model = nn.Linear(3, 1)
    batches = [(torch.randn(16, 3), torch.full((16, 1), -20.0)) for _ in range(3)]
    stopper = EarlyStopping(model, nn.SmoothL1Loss(), signal="evidence_based", batches=3)
    for _ in range(8):
        assert not stopper.step(batches)
    assert all(math.isfinite(reading.values["evidence_based"]) for reading in stopper.history)


@pytest.mark.parametrize("num", [8, 32])
def test_bias_correction_gives_zero_on_pure_noise(moments_of, num):
    moments = moments_of(torch.randn(num, 20_000))
    assert EvidenceBased(bias_correct=True).read(moments) == pytest.approx(0.0, abs=0.1)
    assert EvidenceBased().read(moments) == pytest.approx(1.0 - (num - 1) / (num - 3), abs=0.1)


def test_bias_correction_of_three_samples_raises(moments_of):
    with pytest.raises(BatchesError, match="more than 3 samples. Found one of 3"):
        EvidenceBased(bias_correct=True).read(moments_of(TRIANGLE))


@settings(max_examples=25)
@given(ROWS)
def test_evidence_equals_the_reference_on_any_gradients(moments_of, rows):
    G = torch.tensor(rows, dtype=torch.float64)
    live = G[:, (G != 0).any(0)]
    assume(live.shape[1] and bool((live.var(0) > 1e-6 * live.square().mean(0)).all()))
    assert EvidenceBased().read(moments_of(rows)) == pytest.approx(reference.evidence_based(G), rel=1e-6, abs=1e-9)


@settings(max_examples=25)
@given(ROWS, st.integers(-30, 30))
def test_evidence_is_one_minus_gsnr_times_n_minus_one_at_every_scale(moments_of, rows, exponent):
    moments = moments_of(rows)
    value = EvidenceBased().read(moments)
    assert value == pytest.approx(1.0 - (len(rows) - 1) * GradientSNR().read(moments), rel=1e-12, nan_ok=True)
    scaled = moments_of(torch.tensor(rows, dtype=torch.float64) * 2.0**exponent)
    assert EvidenceBased().read(scaled) == pytest.approx(value, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("ratio_of_sums", [False, True])
def test_gsnr_equals_the_reference_on_a_network(dtype, scale, ratio_of_sums):
    def loss(output, target):
        return scale * F.cross_entropy(output, target, reduction="none")

    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).to(dtype)
    batches = [(torch.randn(16, 6).to(dtype), torch.arange(16) % 3) for _ in range(2)]
    found = GradientSNR(ratio_of_sums).read(sample_moments(Probe(model, loss), batches))
    rows = [reference.sample_gradients(model, loss, batch) for batch in batches]
    expected = fmean(reference.gsnr(G, ratio_of_sums) for G in rows)
    assert found == pytest.approx(expected, rel=1e-10 if dtype is torch.float64 else 1e-4)
