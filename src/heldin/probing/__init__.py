"""Model + batches -> gradients. The only room that touches a model; it leaves no trace."""

from heldin.probing.batches import draw, whole
from heldin.probing.probe import Probe

__all__ = ["Probe", "draw", "whole"]
