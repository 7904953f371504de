"""An optimizer by its name, with torch's own defaults but for what the spec says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from torch import nn, optim

from heldin.errors import require_choice
from heldin.lab.spec import RunSpec

MOMENTUM = 0.9

KNOWN: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": optim.SGD,
    "momentum": partial(optim.SGD, momentum=MOMENTUM),
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "rmsprop": optim.RMSprop,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
}


def build_optimizer(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
    """The spec's optimizer."""
    require_choice("optimizer", spec.optimizer, KNOWN)
    return KNOWN[spec.optimizer](parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay)
