"""The reproduction harness: claims, items, runs, verdicts and pages. It knows nothing of this paper in particular."""

from paper.harness.claims import NO_PROTOCOL
from paper.harness.items import Item, Numbers, Result, Row, RunGroup, Runs, merge
from paper.harness.verdicts import MEAN_CURVE, PER_RUN, PROTOCOLS

__all__ = [
    "MEAN_CURVE",
    "NO_PROTOCOL",
    "PER_RUN",
    "PROTOCOLS",
    "Item",
    "Numbers",
    "Result",
    "Row",
    "RunGroup",
    "Runs",
    "merge",
]
