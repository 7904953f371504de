"""What is within reach: found wherever people keep things, each once, and never at the price of a dataset."""

from __future__ import annotations

import collections
import functools
import tempfile
import threading
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, Subset, TensorDataset

from heldin.probing.reach import DEPTH, MOST, SMALL, is_generator, is_module, within_reach


class Holder:
    """Anything that keeps something in an attribute."""

    def __init__(self, held):
        self.held = held

    def use(self):
        return self.held


class Slotted:
    __slots__ = ("__private", "empty", "held")

    def __init__(self, held):
        self.held = held


class Stream(IterableDataset):
    def __init__(self, held):
        self.held = held

    def __iter__(self):
        yield self.held


class Sharing:
    """Keeps something for all its instances."""

    shared = np.random.default_rng(5)


OF_THE_FILE = np.random.default_rng(5)
NET = nn.Linear(2, 2)
COUNTS = {"calls": 0}


def draw():
    return OF_THE_FILE.normal()


class ByName:
    def use(self, x):
        return [x + OF_THE_FILE.normal() for _ in range(3)]


class ByNameOfAFunction:
    @torch.no_grad()
    def __call__(self, x):
        return x + draw()


class InAProperty:
    @property
    def noise(self):
        return draw()

    @staticmethod
    def net():
        return NET


def found_in(*holders):
    return within_reach(holders)


def reaches(place, thing):
    return any(found is thing for found in found_in(place))


def closing_over(thing):
    return lambda: thing


PLACES = {
    "itself": lambda thing: thing,
    "attribute": Holder,
    "attribute of an attribute": lambda thing: Holder(Holder(Holder(thing))),
    "slot": Slotted,
    "namespace": lambda thing: types.SimpleNamespace(held=thing),
    "list": lambda thing: [1, thing],
    "tuple": lambda thing: Holder(("a", (thing,))),
    "dict": lambda thing: {"a": {"b": thing}},
    "deque": lambda thing: collections.deque([thing]),
    "closure": closing_over,
    "default argument": lambda thing: lambda held=thing: held,
    "default argument by name": lambda thing: lambda *, held=thing: held,
    "bound method": lambda thing: Holder(thing).use,
    "partial": lambda thing: functools.partial(print, thing, end=Holder(thing)),
    "list of a module": lambda thing: nn.Sequential(nn.Sequential(with_list(thing))),
    "dataset of a subset": lambda thing: DataLoader(Subset(Holder(thing), [0])),
    "chained streams": lambda thing: DataLoader(ChainDataset([Stream(1), Stream(thing)])),
    "stream of a stream": lambda thing: DataLoader(Stream(Stream(thing))),
    "collate function": lambda thing: DataLoader(TensorDataset(torch.zeros(4)), collate_fn=closing_over(thing)),
    "dict of loaders": lambda thing: Holder({"a": DataLoader(Stream(thing))}),
}


class Owned(torch.utils.data.Dataset):
    def __init__(self, held):
        self.held = held

    def __len__(self):
        return 1


def with_list(thing):
    module = nn.Dropout()
    module.held = [thing]
    return module


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_things_are_found_where_people_keep_them(place):
    thing = Holder(None)
    assert reaches(place(thing), thing)


@pytest.mark.parametrize(
    ("holder", "thing"),
    [
        pytest.param(Sharing(), Sharing.shared, id="class attribute"),
        pytest.param(ByName(), OF_THE_FILE, id="inside a comprehension"),
        pytest.param(ByNameOfAFunction(), OF_THE_FILE, id="through a function, decorated"),
        pytest.param(InAProperty(), OF_THE_FILE, id="property"),
        pytest.param(InAProperty(), NET, id="module, in a static method"),
        pytest.param(draw, OF_THE_FILE, id="function"),
        pytest.param(lambda: draw(), OF_THE_FILE, id="function of a function"),
    ],
)
def test_what_code_uses_by_a_global_name_is_found(holder, thing):
    assert reaches(holder, thing)


def test_of_global_names_only_randomness_modules_and_functions_are_followed():
    assert not reaches(lambda: COUNTS, COUNTS)


def test_a_generator_made_anew_under_the_same_name_is_found(monkeypatch):
    assert reaches(ByName(), OF_THE_FILE)
    monkeypatch.setitem(globals(), "OF_THE_FILE", np.random.default_rng(6))
    assert reaches(ByName(), OF_THE_FILE)


def test_each_thing_is_found_once_and_circles_come_to_an_end():
    one, other = Holder(None), Holder(None)
    one.held, other.held = [other, other], one
    assert [id(thing) for thing in found_in(one, one)] == [id(one), id(one.held), id(other)]


def test_a_long_chain_is_followed_so_far():
    end = Holder(None)
    near, far = end, end
    for _ in range(DEPTH - 1):
        near = Holder(near)
    for _ in range(DEPTH):
        far = Holder(far)
    assert reaches(near, end)
    assert not reaches(far, end)


@pytest.mark.parametrize("size", [SMALL, SMALL + 1])
def test_containers_of_data_are_not_searched(size):
    thing = [1]
    assert reaches([thing] * size, thing) == (size <= SMALL)
    assert reaches([Holder(thing)] * size, thing) == (size <= SMALL)


def test_there_is_an_end_to_it():
    def tree(depth):
        return Holder([tree(depth - 1) for _ in range(40)]) if depth else Holder(None)

    assert len(within_reach([tree(3)])) == MOST


class Growing:
    """Has whatever attribute it is asked for."""

    def __getattr__(self, name):
        return Growing()


class ByKey(dict):
    __getattr__ = dict.__getitem__


class Endless(list):
    def __iter__(self):
        while True:
            yield 1


class WithOddAttributes:
    growing, by_key = Growing(), ByKey(a=1)


class Unset:
    __slots__ = ("inner", "never")

    def __init__(self):
        self.inner = Growing()

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Compared(type):
    """A class of this kind cannot be hashed."""

    def __eq__(cls, other):
        return True


@pytest.mark.parametrize(
    "thing",
    [WithOddAttributes(), Endless([1]), Unset(), Compared("Odd", (), {})()],
    ids=lambda thing: type(thing).__name__,
)
def test_odd_classes_are_gone_past(thing):
    assert reaches(thing, thing)


def test_tensors_of_a_module_are_left_to_those_who_lend_them():
    module = nn.BatchNorm1d(3)
    module.statistic = torch.zeros(3)
    assert found_in(module) == [module]


@pytest.mark.parametrize(
    "create",
    [threading.Lock, tempfile.TemporaryFile, lambda: iter([1]), lambda: torch.optim.SGD([NET.weight], 1.0)],
    ids=["lock", "file", "iterator", "optimizer"],
)
def test_what_libraries_keep_for_themselves_is_not_looked_into(create):
    closed = create()
    assert len(within_reach([Holder(closed)])) <= 2
    if hasattr(closed, "close"):
        closed.close()


def test_a_running_iterator_of_a_loader_is_not_looked_into():
    loader = DataLoader(TensorDataset(torch.zeros(4)))
    loader.mine = iter(loader)
    inside = vars(loader.mine)["_sampler_iter"]
    assert not reaches(loader, inside)


def test_a_weak_proxy_of_a_module_is_not_taken_for_one():
    proxy = weakref.proxy(NET)  # as Lightning keeps them
    assert isinstance(proxy, nn.Module)
    assert [is_module(thing) for thing in found_in([proxy])] == [False, False]
    assert is_module(NET)


def test_generators_are_known_as_such():
    assert is_generator(torch.Generator())
    assert is_generator(np.random.RandomState(1))
    assert not is_generator(torch)
    assert not is_generator(Holder(torch.Generator()))
