"""Batches of any structure, changed and copied."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heldin.probing.structure import changed, own_copy, tensors_in

Pair = namedtuple("Pair", "x y")
X, Y = torch.arange(6.0).view(3, 2), torch.arange(3)


class OwnDict(dict):
    """A dictionary that is made of something else than its contents."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x=x, y=y)
        self.note = "kept"


class OwnList(list):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__([x, y])


class OwnTuple(tuple):
    def __new__(cls, x: Tensor, y: Tensor) -> OwnTuple:
        return super().__new__(cls, (x, y))


class Unwritable(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("not to be written")


@dataclass(frozen=True)
class Frozen:
    x: Tensor
    y: Tensor
    twice: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", self.x)


def of_defaultdict() -> defaultdict:
    found = defaultdict(list)
    found.update(x=X, y=Y)
    return found


KEPT = {
    "dict": {"x": X, "y": Y},
    "ordered dict": OrderedDict(x=X, y=Y),
    "user dict": UserDict(x=X, y=Y),
    "defaultdict": of_defaultdict(),
    "dict with its own init": OwnDict(X, Y),
    "list": [X, Y],
    "list with its own init": OwnList(X, Y),
    "tuple": (X, Y),
    "named tuple": Pair(X, Y),
    "dataclass": Frozen(X, Y),
    "nested": ({"x": [X]}, Pair(Y, None)),
}
PLAIN = {
    "mapping proxy": (MappingProxyType({"x": X, "y": Y}), dict),
    "dict that cannot be written": (Unwritable(x=X, y=Y), dict),
    "tuple with its own new": (OwnTuple(X, Y), tuple),
}


@pytest.mark.parametrize("batch", KEPT.values(), ids=KEPT)
def test_a_structure_is_kept_around_other_tensors(batch):
    found = changed(batch, lambda tensor: tensor + 1)
    assert type(found) is type(batch)
    expected = [tensor + 1 for tensor in tensors_in(batch)]
    assert [tensor.tolist() for tensor in tensors_in(found)] == [tensor.tolist() for tensor in expected]


@pytest.mark.parametrize(("batch", "kind"), PLAIN.values(), ids=PLAIN)
def test_a_container_that_cannot_be_filled_gives_way_to_the_plain_kind(batch, kind):
    found = changed(batch, lambda tensor: tensor + 1)
    assert type(found) is kind
    assert [tensor.tolist() for tensor in tensors_in(found)] == [(X + 1).tolist(), (Y + 1).tolist()]


@pytest.mark.parametrize("batch", [*KEPT.values(), *(batch for batch, _ in PLAIN.values())], ids=[*KEPT, *PLAIN])
def test_where_no_tensor_changes_the_batch_is_handed_on_itself(batch):
    assert changed(batch, lambda tensor: tensor) is batch


def test_the_original_keeps_its_tensors_and_a_copy_its_attributes():
    batch = OwnDict(X, Y)
    found = changed(batch, lambda tensor: tensor + 1)
    assert batch["x"] is X
    assert found.note == "kept"


def test_what_is_no_tensor_is_handed_on():
    thing = object()
    found = changed({"x": X, "name": "digits", "thing": thing, "none": None}, lambda tensor: tensor + 1)
    assert (found["name"], found["thing"], found["none"]) == ("digits", thing, None)


def test_a_copy_shares_no_memory():
    batch = {"x": X.clone(), "more": [Y.clone()]}
    for tensor in tensors_in(own_copy(batch)):
        tensor.zero_()
    assert torch.equal(batch["x"], X)
    assert torch.equal(batch["more"][0], Y)


def test_a_tensor_that_is_there_twice_is_one_tensor_in_the_copy():
    x, target = own_copy((X, X))
    assert x is target
    assert x is not X


def test_a_tensor_that_requires_a_gradient_is_handed_on():
    parameter = nn.Parameter(torch.ones(2))
    on_a_graph = parameter * 2
    assert own_copy([parameter, on_a_graph]) == [parameter, on_a_graph]


class Graphs:
    """A batch of a class of its own, which knows how to copy itself."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def clone(self) -> Graphs:
        return Graphs(self.x.clone())


def test_an_object_that_can_copy_itself_does():
    batch = Graphs(X.clone())
    own_copy((batch, Y))[0].x.zero_()
    assert torch.equal(batch.x, X)


class Sharing(MutableMapping):
    """A mapping whose copy writes to the same place."""

    def __init__(self, **content: Tensor) -> None:
        self.content = content

    def __getitem__(self, key: str) -> Tensor:
        return self.content[key]

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.content[key] = value

    def __delitem__(self, key: str) -> None:
        del self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


def test_a_mapping_whose_copy_shares_its_contents_is_left_as_it_was():
    batch = Sharing(x=X, y=Y)
    found = changed(batch, lambda tensor: tensor + 1)
    assert batch["x"] is X
    assert batch["y"] is Y
    assert torch.equal(found["x"], X + 1)
