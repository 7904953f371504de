"""Subsets, folds and stratified test parts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.lab.data import folds, subset
from heldin.lab.data.splits import stratified

SEEDS = st.integers(0, 2**32)
LABELS = st.lists(st.integers(0, 4), min_size=2, max_size=60)


@given(st.integers(1, 200), SEEDS, st.data())
def test_a_subset_has_distinct_indices_and_is_the_beginning_of_larger_ones(n, seed, data):
    num = data.draw(st.integers(1, n))
    chosen, everything = subset(n, num, seed), subset(n, n, seed)
    assert chosen.dtype == torch.int64
    assert torch.equal(chosen, everything[:num])
    assert sorted(everything.tolist()) == list(range(n))


@given(st.integers(2, 200), SEEDS, st.data())
def test_folds_are_disjoint_of_equal_size_and_complete(n, seed, data):
    k = data.draw(st.integers(2, n))
    parts = folds(n, k, seed)
    sizes = [len(part) for part in parts]
    assert len(parts) == k
    assert max(sizes) - min(sizes) <= 1
    assert sorted(torch.cat(parts).tolist()) == list(range(n))


@pytest.mark.parametrize("draw", [lambda seed: subset(50, 20, seed), lambda seed: torch.cat(folds(50, 5, seed))])
def test_subsets_and_folds_are_functions_of_their_seed_only(draw):
    before = torch.get_rng_state()
    assert torch.equal(draw(5), draw(5))
    assert not torch.equal(draw(5), draw(6))
    assert torch.equal(torch.get_rng_state(), before)


def test_subset_and_folds_with_the_same_seed_are_unrelated():
    assert not torch.equal(subset(50, 50, seed=0), torch.cat(folds(50, 5, seed=0)))


def test_more_folds_than_samples_are_refused():
    with pytest.raises(ArgumentError, match="at most 10 folds, one for each sample. Found `k = 11`"):
        folds(10, 11, seed=0)


@given(LABELS, st.data())
def test_a_stratified_split_has_each_class_in_its_share(labels, data):
    labels = torch.tensor(labels)
    num_test = data.draw(st.integers(1, len(labels) - 1))
    train, test = stratified(labels, num_test)
    assert len(test) == num_test
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
    share = labels.bincount(minlength=5) * num_test / len(labels)
    assert ((labels[test].bincount(minlength=5) - share).abs() <= 1).all()


def test_a_stratified_split_is_a_function_of_its_seed_only():
    labels = torch.arange(100) % 3
    before = torch.get_rng_state()
    first, again, other = stratified(labels, 20), stratified(labels, 20), stratified(labels, 20, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[1], again[1])
    assert {*first[1].tolist()} != {*other[1].tolist()}


def test_a_stratified_split_is_not_sorted_by_class():
    train, _ = stratified(torch.arange(100) // 50, 20)
    assert (train < 50).long().diff().abs().sum() > 10
