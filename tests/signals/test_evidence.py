"""The evidence-based criterion against its worked examples, its oracle and its own laws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from heldin import EarlyStopping
from heldin.errors import BatchesError
from heldin.probing import Probe
from heldin.probing.moments import sample_moments
from heldin.rules import Level, replay
from heldin.signals import reference
from heldin.signals.evidence import EvidenceBased
from heldin.signals.gradient_snr import GradientSNR

TRIANGLE = [(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]


def moments(*batches):
    """Of a model whose gradient for a sample is that sample."""
    drawn = [torch.as_tensor(batch, dtype=torch.float64) for batch in batches]
    drawn = [rows[:, None] if rows.ndim == 1 else rows for rows in drawn]
    model = nn.Linear(drawn[0].shape[1], 1, bias=False, dtype=torch.float64)
    probe = Probe(model, lambda output, target: output.squeeze(1))
    return sample_moments(probe, [(rows, torch.zeros(len(rows))) for rows in drawn])


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [(TRIANGLE, -49.078947), ([2.0, 0.0], 0.0), ([1.0, -1.0], 1.0), ([3.0, 1.0], -3.0)],
    ids=["three vectors", "boundary", "noise alone", "signal"],
)
def test_worked_examples(gradients, expected):
    assert EvidenceBased().read(moments(gradients)) == pytest.approx(expected, abs=1e-6)


def test_the_boundary_is_no_stop_and_noise_alone_is():
    values = [EvidenceBased().read(moments(gradients)) for gradients in ([3.0, 1.0], [2.0, 0.0], [1.0, -1.0])]
    assert EvidenceBased.rule == Level(0.0)
    assert replay(EvidenceBased.rule, values).epoch == 2


def test_batches_are_averaged():
    assert EvidenceBased().read(moments([3.0, 1.0], [1.0, -1.0])) == pytest.approx(-1.0)


def test_dead_coordinates_do_not_count():
    assert EvidenceBased().read(moments([(3.0, 0.0), (1.0, 0.0)])) == pytest.approx(-3.0)


def test_an_absolute_loss_leaves_its_bias_out_and_stops_nothing():
    """Its gradient is 1 for every sample: all signal, and no t statistic."""
    model = nn.Linear(3, 1)
    batches = [(torch.randn(16, 3), torch.full((16, 1), -20.0)) for _ in range(3)]
    stopper = EarlyStopping(model, nn.SmoothL1Loss(), signal="evidence_based", batches=3)
    for _ in range(8):
        assert not stopper.step(batches)
    assert all(math.isfinite(reading.values["evidence_based"]) for reading in stopper.history)


def test_no_variance_at_all_is_certainty_and_no_gradient_at_all_is_nothing():
    assert EvidenceBased().read(moments([2.0, 2.0])) == -math.inf
    assert math.isnan(EvidenceBased().read(moments([0.0, 0.0])))


@pytest.mark.parametrize("num", [8, 32])
def test_bias_correction_makes_pure_noise_come_out_at_zero(num):
    found = moments(torch.randn(num, 20_000))
    assert EvidenceBased(bias_correct=True).read(found) == pytest.approx(0.0, abs=0.1)
    assert EvidenceBased().read(found) == pytest.approx(1.0 - (num - 1) / (num - 3), abs=0.1)


def test_bias_correction_of_three_samples_is_refused():
    with pytest.raises(BatchesError, match="more than 3 samples. Found one of 3"):
        EvidenceBased(bias_correct=True).read(moments(TRIANGLE))


rows = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=n, max_size=n)
)


@given(rows)
def test_equals_the_reference_on_any_gradients(drawn):
    G = torch.tensor(drawn, dtype=torch.float64)
    live = G[:, (G != 0).any(0)]
    assume(live.shape[1] and bool((live.var(0) > 1e-6 * live.square().mean(0)).all()))
    assert EvidenceBased().read(moments(drawn)) == pytest.approx(reference.evidence_based(G), rel=1e-6, abs=1e-9)


@given(rows)
def test_says_what_gsnr_says(drawn):
    found = moments(drawn)
    expected = 1.0 - (len(drawn) - 1) * GradientSNR().read(found)
    assert EvidenceBased().read(found) == pytest.approx(expected, rel=1e-12, nan_ok=True)


@given(rows, st.integers(-30, 30))
def test_scaling_the_gradients_changes_nothing(drawn, exponent):
    scaled = (torch.tensor(drawn, dtype=torch.float64) * 2.0**exponent).tolist()
    one, other = EvidenceBased().read(moments(drawn)), EvidenceBased().read(moments(scaled))
    assert other == pytest.approx(one, rel=1e-9, nan_ok=True)
