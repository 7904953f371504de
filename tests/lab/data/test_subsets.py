import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.lab.data import folds, subset

SEEDS = st.integers(0, 2**32)


@given(st.integers(1, 200), SEEDS, st.data())
def test_a_subset_holds_each_index_once_and_begins_every_larger_one(n, seed, data):
    num = data.draw(st.integers(1, n))
    chosen, everything = subset(n, num, seed), subset(n, n, seed)
    assert chosen.dtype == torch.int64
    assert torch.equal(chosen, everything[:num])
    assert sorted(everything.tolist()) == list(range(n))


@given(st.integers(2, 200), SEEDS, st.data())
def test_folds_are_disjoint_and_even_and_all_there_is(n, seed, data):
    k = data.draw(st.integers(2, n))
    parts = folds(n, k, seed)
    sizes = [len(part) for part in parts]
    assert len(parts) == k
    assert max(sizes) - min(sizes) <= 1
    assert sorted(torch.cat(parts).tolist()) == list(range(n))


@pytest.mark.parametrize("draw", [lambda seed: subset(50, 20, seed), lambda seed: torch.cat(folds(50, 5, seed))])
def test_both_are_functions_of_their_seed_and_leave_the_global_stream_alone(draw):
    before = torch.get_rng_state()
    assert torch.equal(draw(5), draw(5))
    assert not torch.equal(draw(5), draw(6))
    assert torch.equal(torch.get_rng_state(), before)


def test_subset_and_folds_of_one_seed_are_unrelated():
    assert not torch.equal(subset(50, 50, seed=0), torch.cat(folds(50, 5, seed=0)))


def test_more_than_there_are_is_refused():
    with pytest.raises(ArgumentError, match="at most 10 samples, all there are. Found 11"):
        subset(10, 11, seed=0)
    with pytest.raises(ArgumentError, match="at most 10 folds, one for each sample. Found `k = 11`"):
        folds(10, 11, seed=0)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None])
def test_numbers_that_count_nothing_are_refused(number):
    with pytest.raises(ArgumentError, match="Parameter `num` should be an integer of at least 1"):
        subset(10, number, seed=0)
    with pytest.raises(ArgumentError, match="Parameter `k` should be an integer of at least 2"):
        folds(10, number, seed=0)


def test_a_single_fold_is_refused():
    with pytest.raises(ArgumentError, match="Found `k = 1`"):
        folds(10, 1, seed=0)
