"""When a rule should begin: once the training loss has fallen."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.rules import first_after_fall


@pytest.mark.parametrize(
    ("losses", "fraction", "expected"),
    [
        ([], 0.1, None),
        ([2.0], 0.1, None),
        ([2.0, 2.0, 2.0], 0.0, None),
        ([2.0, 1.9], 0.0, 1),
        ([2.0, 1.9, 1.8, 1.7], 0.1, 2),
        ([2.0, 4.0, 3.7, 3.5], 0.1, 3),  # below the highest so far, not the first
        ([2.0, None, 1.0], 0.1, 2),
        ([nan, 2.0, inf, -inf, 1.0], 0.1, 4),
        ([-2.0, -2.1, -2.3], 0.1, 2),  # a loss may be negative: a fraction of its size
        ([0.0, -1.0], 0.5, 1),
        ([0.0, 0.0], 0.5, None),
        ([1e-300, 1e-301], 0.5, 1),
    ],
)
def test_the_first_loss_that_is_below_the_highest_by_a_fraction(losses, fraction, expected):
    assert first_after_fall(losses, fraction) == expected


@given(st.lists(st.floats(0.01, 10), max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fall_is_never_reached_earlier(losses, one, other):
    small, large = (first_after_fall(losses, fraction) for fraction in sorted((one, other)))
    assert large is None or (small is not None and small <= large)
