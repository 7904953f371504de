"""Measurements -> one number. One file a signal (or a close family); its docstring is its card."""

from heldin.signals.gradient_disparity import GradientDisparity, TrainValDisparity
from heldin.signals.signal import REGISTRY, Signal, as_signal, labelled, register

__all__ = [
    "REGISTRY",
    "GradientDisparity",
    "Signal",
    "TrainValDisparity",
    "as_signal",
    "labelled",
    "register",
]
