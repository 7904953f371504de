"""Batches kept as they pass by: a few of those since the last measurement, each with the same chance."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from heldin.integrations._passing import Passing


def kept(num, batches, seed=0, measured=0):
    passing = Passing(num, seed)
    passing.begin_anew(measured)
    for batch in batches:
        passing.keep(batch)
    return [*passing.kept]


def test_where_there_are_no_more_than_wanted_all_are_kept():
    assert kept(3, []) == []
    assert kept(3, "ab") == ["a", "b"]
    assert kept(3, "abc") == ["a", "b", "c"]


def test_every_batch_has_the_same_chance():
    times = Counter(batch for seed in range(600) for batch in kept(3, range(10), seed))
    assert set(times) == set(range(10))
    assert all(135 <= num <= 225 for num in times.values())  # 180 on average, 11 its standard deviation


def test_seed_and_measurement_choose():
    choices = {(seed, measured): kept(3, range(50), seed, measured) for seed in (0, 1) for measured in (0, 1)}
    assert len(set(map(tuple, choices.values()))) == 4
    assert kept(3, range(50), 1, 1) == choices[1, 1]


def test_batches_of_before_stay_until_there_are_enough():
    passing = Passing(3, seed=0)
    for batch in "abcd":
        passing.keep(batch)
    before = [*passing.kept]
    passing.begin_anew(1)
    assert [*passing.kept] == before
    passing.keep("e")
    assert [*passing.kept] == [*before[1:], "e"]
    for batch in "fg":
        passing.keep(batch)
    assert [*passing.kept] == ["e", "f", "g"]


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20), st.integers(0, 99))
def test_as_many_as_wanted_are_kept_none_twice_and_new_ones_first(num, num_old, num_new, seed):
    passing = Passing(num, seed)
    for batch in range(num_old):
        passing.keep(batch)
    passing.begin_anew(1)
    for batch in range(100, 100 + num_new):
        passing.keep(batch)
    found = [*passing.kept]
    assert len(found) == len(set(found)) == min(num, num_old + num_new)
    assert sum(batch >= 100 for batch in found) == min(num, num_new)
