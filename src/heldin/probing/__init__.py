"""The only package that runs a model: gradients, losses and outputs of batches, with everything restored."""

from heldin.probing.batches import draw, in_order
from heldin.probing.probe import Probe

__all__ = ["Probe", "draw", "in_order"]
