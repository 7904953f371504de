"""heldin: early stopping with nothing held out."""

from heldin.measuring import measure
from heldin.probing import Probe
from heldin.rules import (
    ConsecutiveRises,
    FirstMinimum,
    Level,
    NthRise,
    Patience,
    Smoothed,
    Warmup,
    all_of,
    any_of,
    replay,
)
from heldin.signals import (
    Cosine,
    GradientConfusion,
    GradientDisparity,
    GradientVariance,
    InnerProduct,
    NoiseScale,
    Sign,
    TrainValDisparity,
    list_signals,
)
from heldin.signals.signal import signal
from heldin.stopping import EarlyStopping
from heldin.types import Decision, StopReason

__version__ = "0.1.0"

__all__ = [
    "ConsecutiveRises",
    "Cosine",
    "Decision",
    "EarlyStopping",
    "FirstMinimum",
    "GradientConfusion",
    "GradientDisparity",
    "GradientVariance",
    "InnerProduct",
    "Level",
    "NoiseScale",
    "NthRise",
    "Patience",
    "Probe",
    "Sign",
    "Smoothed",
    "StopReason",
    "TrainValDisparity",
    "Warmup",
    "all_of",
    "any_of",
    "list_signals",
    "measure",
    "replay",
    "signal",
]
