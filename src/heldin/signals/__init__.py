"""Signals: one file per signal or close family; the docstring of a signal is its card."""

from heldin.signals.alignment import Cosine, GradientConfusion, InnerProduct, Sign
from heldin.signals.class_alignment import ClassAlignment, Stiffness
from heldin.signals.coherence import Coherence, Diversity
from heldin.signals.gradient_disparity import GradientDisparity, TrainValDisparity
from heldin.signals.gradient_variance import GradientVariance, NoiseScale
from heldin.signals.gradient_weight_alignment import GradientWeightAlignment
from heldin.signals.label_wave import LabelWave
from heldin.signals.optimization_variance import OptimizationVariance
from heldin.signals.prediction_variance import PredictionVariance
from heldin.signals.registry import REGISTRY, as_signal, from_label, list_signals, register, signals_by_label
from heldin.signals.signal import Memory, Signal, StatefulSignal
from heldin.signals.signal_to_noise import EvidenceBased, GradientSNR
from heldin.signals.susceptibility import Susceptibility

__all__ = [
    "REGISTRY",
    "ClassAlignment",
    "Coherence",
    "Cosine",
    "Diversity",
    "EvidenceBased",
    "GradientConfusion",
    "GradientDisparity",
    "GradientSNR",
    "GradientVariance",
    "GradientWeightAlignment",
    "InnerProduct",
    "LabelWave",
    "Memory",
    "NoiseScale",
    "OptimizationVariance",
    "PredictionVariance",
    "Sign",
    "Signal",
    "StatefulSignal",
    "Stiffness",
    "Susceptibility",
    "TrainValDisparity",
    "as_signal",
    "from_label",
    "list_signals",
    "register",
    "signals_by_label",
]
