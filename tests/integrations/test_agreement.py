"""One reading for all ranks: the mean of what they read, and one refusal where they cannot agree."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed, nn

from heldin import EarlyStopping
from heldin.errors import HeldinError, NotFiniteError
from heldin.integrations._agreement import AgreeingStopping, _mean, _mean_value, num_ranks, rank
from heldin.types import Reading

LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def one_rank(tmp_path):
    """torch.distributed in use, with nobody else there; two ranks are in test_adapter.py."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def batches(fill=None):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(5, 6, 4, generator=generator) if fill is None else torch.full((5, 6, 4), fill)
    return [(inputs, torch.arange(6) % 3) for inputs in x]


def said(*readings):
    return [reading.as_dict() for reading in readings]


def test_where_torch_distributed_is_not_in_use_there_is_one_rank():
    assert (num_ranks(), rank()) == (1, 0)


def test_the_reading_of_all_is_the_mean_over_all_their_batches():
    found = _mean(said(Reading(3, {"a": 1.0, "b": None}, 5), Reading(3, {"a": 2.5, "b": 4.0}, 4)))
    assert found == Reading(3, {"a": 1.75, "b": None}, 9)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 4.5], 2.5),
        ([7.0], 7.0),
        ([1.0, None], None),
        ([math.nan, None], None),
        ([1.0, math.nan], math.nan),
        ([math.inf, -math.inf], math.nan),
        ([math.inf, 1.0], math.nan),
        ([1e16, 1.0, -1e16], 1 / 3),
        ([1e308, 1e308], 1e308),
        ([0.1, 0.1, 0.1], 0.1),
    ],
    ids=str,
)
def test_a_value_nobody_has_yet_is_none_and_one_that_is_not_finite_is_nan(values, expected):
    assert repr(_mean_value(values)) == repr(expected)


@settings(max_examples=25)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_ranks_does_not_matter_to_the_last_bit(values, random):
    shuffled = random.sample(values, len(values))
    assert _mean_value(shuffled) == _mean_value(values)


def test_what_one_rank_could_not_measure_is_told_to_the_others():
    with pytest.raises(
        HeldinError, match="^Rank 1 could not measure, so no rank goes on. It says: NotFiniteError: no$"
    ):
        _mean([*said(Reading(0, {"a": 1.0}, 5)), "NotFiniteError: no"])


def test_ranks_at_different_measurements_are_refused_with_the_likely_cause():
    readings = [Reading(epoch, {"a": 1.0}, 5) for epoch in (2, 2, 1)]
    with pytest.raises(HeldinError, match=r"same measurement. Found them at \[2, 2, 1\]: they were not resumed"):
        _mean(said(*readings))


def test_alone_among_ranks_one_reads_what_one_reads_alone(one_rank):
    model = nn.Linear(4, 3)
    alone, together = EarlyStopping(model, LOSS), AgreeingStopping(model, LOSS)
    together.decide_together(True)
    for stopper in (alone, together):
        stopper.step(batches())
        stopper.step(batches())
    assert (num_ranks(), rank()) == (1, 0)
    assert together.history == alone.history
    assert len(alone.history) == 2


def test_whose_measurement_fails_raises_its_own_error(one_rank):
    stopper = AgreeingStopping(nn.Linear(4, 3), LOSS)
    stopper.decide_together(True)
    with pytest.raises(NotFiniteError, match="NaN or infinite"):
        stopper.step(batches(fill=math.nan))
    assert stopper.history == ()


def test_told_so_a_stopper_decides_together_and_otherwise_by_itself():
    stopper = AgreeingStopping(nn.Linear(4, 3), LOSS)
    stopper.step(batches())  # there is no process group to ask
    stopper.decide_together(True)
    with pytest.raises(ValueError, match="process group"):
        stopper.step(batches())


def test_the_epoch_of_the_weights_kept_can_be_asked_for():
    stopper = AgreeingStopping(nn.Linear(4, 3), LOSS, keep="lowest")
    assert stopper.kept_epoch is None
    stopper.step(batches())
    assert stopper.kept_epoch == 0
