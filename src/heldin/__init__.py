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
from heldin.signals import GradientDisparity, TrainValDisparity
from heldin.stopping import EarlyStopping
from heldin.types import Decision, StopReason

__version__ = "0.1.0"

__all__ = [
    "ConsecutiveRises",
    "Decision",
    "EarlyStopping",
    "FirstMinimum",
    "GradientDisparity",
    "Level",
    "NthRise",
    "Patience",
    "Probe",
    "Smoothed",
    "StopReason",
    "TrainValDisparity",
    "Warmup",
    "all_of",
    "any_of",
    "measure",
    "replay",
]
