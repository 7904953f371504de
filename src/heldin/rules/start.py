"""When a rule should begin: once the network has learned something."""

from __future__ import annotations

import math
from collections.abc import Iterable


def first_after_fall(losses: Iterable[float | None], fraction: float) -> int | None:
    """The number of the first training loss that is below its highest so far by a fraction of it; None if none is.

    A network that has not learned yet cannot memorise: signals of its first epochs say little, and how many epochs that
    takes depends on the learning rate. Losses that are None or not finite are skipped.

    Examples:
        >>> first_after_fall([2.3, 2.31, 2.2, 2.0, 1.5], fraction=0.1)
        3
        >>> first_after_fall([2.3, 2.2], fraction=0.1) is None
        True
    """
    highest = -math.inf
    for number, loss in enumerate(losses):
        if loss is None or not math.isfinite(loss):
            continue
        highest = max(highest, loss)
        if loss < highest and loss <= highest - fraction * abs(highest):
            return number
    return None
