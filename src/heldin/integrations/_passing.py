"""Batches kept as they pass by, for frameworks that show a callback no data."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from heldin.probing.randomness import seed_for


class Passing:
    """A few of the batches since the last measurement, each with the same chance to be among them.

    Args:
        num: how many to keep.
        seed: chooses which.
    """

    def __init__(self, num: int, seed: int) -> None:
        self.kept: deque[Any] = deque(maxlen=num)
        self.num = num
        self.seed = seed
        self.begin_anew(0)

    def begin_anew(self, measured: int) -> None:
        """Choose among the batches from now on; those of before stay until there are enough."""
        self._seen, self._chance = 0, random.Random(seed_for(self.seed, "passing", measured))

    def keep(self, batch: Any) -> None:
        """Let a batch pass by."""
        self._seen += 1
        if self._seen <= self.num:
            self.kept.append(batch)
        elif (place := self._chance.randrange(self._seen)) < self.num:
            self.kept[place] = batch
