"""Single samples out of batches of any structure."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from heldin.errors import BatchesError
from heldin.probing.samples import subset, taken_apart

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Record:
    x: Any
    name: str = "none"


X, Y, SHARED = torch.arange(8.0).view(4, 2), torch.arange(4), torch.arange(3)


@pytest.mark.parametrize(
    ("batch", "get"),
    [
        ((X, Y), lambda batch: batch),
        ([X, Y], lambda batch: batch),
        (Pair(X, Y), lambda batch: (batch.x, batch.y)),
        ({"x": X, "more": ({"y": Y}, SHARED)}, lambda batch: (batch["x"], batch["more"][0]["y"])),
        (Record([X, (Y, SHARED)], "kept"), lambda batch: (batch.x[0], batch.x[1][0])),
    ],
    ids=["tuple", "list", "named tuple", "dictionary", "dataclass"],
)
@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([3, 0])], ids=["slice", "indices"])
def test_a_subset_has_the_structure_of_the_batch(batch, get, index):
    found = subset(batch, 4, index)
    assert type(found) is type(batch)
    for part, whole in zip(get(found), (X, Y), strict=True):
        assert torch.equal(part, whole[index])


def test_what_belongs_to_all_samples_is_handed_on_as_it_is():
    batch = {"x": X, "shared": SHARED, "single": torch.tensor(4.0), "name": "digits", "none": None}
    found = subset(batch, 4, slice(0, 1))
    assert all(found[key] is batch[key] for key in ("shared", "single", "name", "none"))


def test_rows_come_in_the_order_in_which_they_are_put_back():
    rows, rebuild = taken_apart({"b": Y, "a": [SHARED, X]}, 4)
    assert [row.data_ptr() for row in rows] == [Y.data_ptr(), X.data_ptr()]
    assert rebuild(["first", "second"]) == {"b": "first", "a": [SHARED, "second"]}


@pytest.mark.parametrize("batch", [(SHARED, SHARED), object(), {"x": torch.tensor(4.0)}], ids=["rows", "object", "0-d"])
def test_a_batch_without_rows_is_refused(batch):
    with pytest.raises(BatchesError, match="one row for each of its 4 samples"):
        subset(batch, 4, slice(0, 1))
