"""Measurements -> one number. One file a signal (or a close family); its docstring is its card."""

from heldin.signals.alignment import Cosine, InnerProduct, Sign
from heldin.signals.gradient_confusion import GradientConfusion
from heldin.signals.gradient_disparity import GradientDisparity, TrainValDisparity
from heldin.signals.gradient_variance import GradientVariance
from heldin.signals.noise_scale import NoiseScale
from heldin.signals.registry import REGISTRY, as_signal, labelled, list_signals, register
from heldin.signals.signal import Memory, RememberingSignal, Signal

__all__ = [
    "REGISTRY",
    "Cosine",
    "GradientConfusion",
    "GradientDisparity",
    "GradientVariance",
    "InnerProduct",
    "Memory",
    "NoiseScale",
    "RememberingSignal",
    "Sign",
    "Signal",
    "TrainValDisparity",
    "as_signal",
    "labelled",
    "list_signals",
    "register",
]
