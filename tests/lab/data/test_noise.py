"""Label noise."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heldin.lab.data import corrupt

FRACTIONS = st.floats(0, 1)
SEEDS = st.integers(0, 2**32)


@st.composite
def signals_by_label(draw):
    num_classes = draw(st.integers(1, 10))
    labels = draw(st.lists(st.integers(0, num_classes - 1), max_size=50))
    return torch.tensor(labels, dtype=torch.int64), num_classes


@given(signals_by_label(), FRACTIONS, SEEDS)
def test_at_most_the_given_fraction_of_labels_changes(labelled, fraction, seed):
    labels, num_classes = labelled
    original = labels.clone()
    noisy = corrupt(labels, fraction, num_classes, seed)
    assert noisy.dtype == labels.dtype
    assert noisy.shape == labels.shape
    assert torch.equal(labels, original)
    assert int((noisy != labels).sum()) <= round(fraction * len(labels))
    assert ((noisy >= 0) & (noisy < num_classes)).all()


@given(signals_by_label(), SEEDS)
def test_no_noise_changes_nothing(labelled, seed):
    labels, num_classes = labelled
    assert torch.equal(corrupt(labels, 0, num_classes, seed), labels)


@given(signals_by_label(), FRACTIONS, FRACTIONS, SEEDS)
def test_more_noise_keeps_what_less_noise_changed(labelled, one, other, seed):
    labels, num_classes = labelled
    less, more = (corrupt(labels, fraction, num_classes, seed) for fraction in sorted((one, other)))
    changed = less != labels
    assert torch.equal(more[changed], less[changed])


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_new_labels_are_uniform_over_all_classes(fraction):
    labels = torch.full((100_000,), 3)
    noisy = corrupt(labels, fraction, 10, seed=1)
    counts = noisy.bincount(minlength=10) / len(labels)
    expected = torch.full((10,), fraction / 10)
    expected[3] += 1 - fraction
    assert torch.allclose(counts, expected, atol=0.005)


def test_noise_is_a_function_of_its_seed_only():
    labels = torch.arange(100) % 10
    before = torch.get_rng_state()
    first, again, other = (corrupt(labels, 0.5, 10, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
