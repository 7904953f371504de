"""A paper, item by item: what it claims, what is run for that, what comes out, and verdicts by rule."""

from heldin.lab.reproducing.claims import ANY
from heldin.lab.reproducing.items import Built, Item, Runs

__all__ = ["ANY", "Built", "Item", "Runs"]
