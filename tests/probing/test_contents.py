"""What things hold is put back into the very objects: entries, attributes, numbers."""

from __future__ import annotations

import collections
import random

import numpy as np
import pytest
import torch
from torch import Tensor

from heldin.probing.contents import MOST_BYTES, MOST_BYTES_IN_A_ROW, put_back


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        self.more = 1


class Slotted:
    __slots__ = ("calls", "empty")

    def __init__(self):
        self.calls = 0


def looked_at(thing):
    """Something to compare."""
    if isinstance(thing, (Tensor, np.ndarray)):
        return thing.tolist()
    if isinstance(thing, Slotted):
        return thing.calls
    if isinstance(thing, dict):
        return list(thing.items())
    return list(thing) if not hasattr(thing, "__dict__") else dict(vars(thing))


CHANGES = {
    "list shuffled": (lambda: list(range(20)), lambda held: random.Random(1).shuffle(held)),
    "list grown": (list, lambda held: held.append(1)),
    "dict entry": (lambda: {"a": 1, "b": 2}, lambda held: held.update(a=2)),
    "dict entry gone": (lambda: {"a": 1, "b": 2}, lambda held: held.pop("a")),
    "dict order": (lambda: {"a": 1, "b": 2}, lambda held: held.update(a=held.pop("a"))),
    "ordered dict": (lambda: collections.OrderedDict(a=1, b=2), lambda held: held.move_to_end("a")),
    "defaultdict": (lambda: collections.defaultdict(int), lambda held: held["a"]),
    "counter": (lambda: collections.Counter("aab"), lambda held: held.update("ab")),
    "set": (lambda: {1, 2}, lambda held: held.add(3)),
    "deque": (lambda: collections.deque([1, 2], maxlen=2), lambda held: held.append(3)),
    "deque turned": (lambda: collections.deque([1, 2]), lambda held: held.rotate()),
    "array": (lambda: np.arange(20), lambda held: np.random.default_rng(1).shuffle(held)),
    "array of two dimensions": (lambda: np.zeros((2, 2)), lambda held: held.__iadd__(1)),
    "array of objects": (lambda: np.array(["a", None]), lambda held: held.__setitem__(0, "b")),
    "tensor": (lambda: torch.arange(4), lambda held: held.add_(1)),
    "tensor of another size": (lambda: torch.arange(4), lambda held: held.resize_(2)),
    "attributes": (Counting, lambda held: held()),
    "slots": (Slotted, lambda held: setattr(held, "calls", 1)),
}


@pytest.mark.parametrize(("create", "change"), CHANGES.values(), ids=CHANGES)
def test_what_changes_is_changed_back(create, change):
    thing = create()
    before = looked_at(thing)
    with put_back([thing]):
        change(thing)
        assert looked_at(thing) != before
    assert looked_at(thing) == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_is_changed_back_when_something_raises(error):
    thing = [1]
    with pytest.raises(error), put_back([thing]):
        thing.clear()
        raise error
    assert thing == [1]


def test_variables_of_a_closure_are_put_back():
    calls = 0

    def count():
        nonlocal calls
        calls += 1
        count.last = calls

    count.last = 0
    with put_back([count]):
        count()
    assert (calls, count.last) == (0, 0)


def test_somebody_half_way_through_goes_on():
    order, names = list(range(4)), dict.fromkeys("abcd")
    names.pop("a")
    numbers, letters = iter(order), iter(names)
    read = [next(numbers), next(letters)]
    with put_back([order, names]):
        order.reverse()
    assert [*read, *numbers, *letters] == [0, "b", 1, 2, 3, "c", "d"]


def test_a_tensor_put_back_is_no_news_to_a_backward_pass():
    scale, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    loss = (scale * weight).sum()
    with put_back([scale]):
        scale.mul_(2)
    loss.backward()
    assert weight.grad.tolist() == [1.0] * 3


def test_tensors_that_did_not_change_are_not_written():
    held = torch.zeros(3)
    before = held._version
    with put_back([held]):
        held.sum()
    assert held._version == before


@pytest.mark.parametrize("create", [np.zeros, torch.zeros], ids=["array", "tensor"])
def test_data_are_not_copied(create):
    small, large = create((2, MOST_BYTES // 16)), create((2, MOST_BYTES))
    row, long_row = create(MOST_BYTES_IN_A_ROW // 8), create(MOST_BYTES_IN_A_ROW)
    things = [small, large, row, long_row]
    with put_back(things):
        for thing in things:
            thing += 1
    assert [float(thing.max()) for thing in things] == [0.0, 1.0, 0.0, 1.0]
    with put_back([large], most_bytes=2**20):
        large += 1
    assert float(large.max()) == 1.0


def test_long_containers_are_not_copied():
    short, long = [1] * 5, [1] * 6
    with put_back([short, long], most_entries=5):
        short.clear()
        long.clear()
    assert (len(short), len(long)) == (5, 0)


def test_what_cannot_be_written_is_left_alone():
    fixed = np.arange(3)
    fixed.flags.writeable = False
    with torch.inference_mode():
        inferred = torch.zeros(3)
    with put_back([fixed, inferred, torch.zeros(3, requires_grad=True), torch.Generator(), None, 3, len]):
        pass
    assert fixed.tolist() == [0, 1, 2]
