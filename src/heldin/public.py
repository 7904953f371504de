"""The public names of heldin, which `import heldin` loads when one of them is first used."""

from heldin import theory
from heldin.errors import HeldinError
from heldin.measuring import measure
from heldin.probing import Probe
from heldin.probing.storage import Sketch
from heldin.rules import (
    ConsecutiveRises,
    FirstMinimum,
    Level,
    NthRise,
    Patience,
    RiseAbove,
    Smoothed,
    Warmup,
    all_of,
    any_of,
    replay,
)
from heldin.signals import (
    ClassAlignment,
    Coherence,
    Cosine,
    Diversity,
    EvidenceBased,
    GradientConfusion,
    GradientDisparity,
    GradientSNR,
    GradientVariance,
    GradientWeightAlignment,
    InnerProduct,
    LabelWave,
    NoiseScale,
    OptimizationVariance,
    PredictionVariance,
    Sign,
    Stiffness,
    Susceptibility,
    TrainValDisparity,
    list_signals,
)
from heldin.signals.signal import signal
from heldin.stopping import EarlyStopping
from heldin.types import Decision, StopReason

__all__ = [
    "ClassAlignment",
    "Coherence",
    "ConsecutiveRises",
    "Cosine",
    "Decision",
    "Diversity",
    "EarlyStopping",
    "EvidenceBased",
    "FirstMinimum",
    "GradientConfusion",
    "GradientDisparity",
    "GradientSNR",
    "GradientVariance",
    "GradientWeightAlignment",
    "HeldinError",
    "InnerProduct",
    "LabelWave",
    "Level",
    "NoiseScale",
    "NthRise",
    "OptimizationVariance",
    "Patience",
    "PredictionVariance",
    "Probe",
    "RiseAbove",
    "Sign",
    "Sketch",
    "Smoothed",
    "Stiffness",
    "StopReason",
    "Susceptibility",
    "TrainValDisparity",
    "Warmup",
    "all_of",
    "any_of",
    "list_signals",
    "measure",
    "replay",
    "signal",
    "theory",
]
