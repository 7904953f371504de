"""How a spec writes the signals it measures: by label, with the probe batches they look at.

`"cosine"` looks at 5 fresh batches an epoch, `"cosine@fixed"` at the same 5 every time, `"cosine@s=20"` at 20.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from heldin.errors import ArgumentError
from heldin.signals import Signal, from_label

DEFAULT_SIGNALS = (
    "gradient_disparity",
    "gradient_disparity[rescale=std_detached]",
    "gradient_disparity[rescale=none]",
    "gradient_disparity@fixed",
    "gradient_disparity[rescale=std_detached]@fixed",
    "gradient_disparity[rescale=none]@fixed",
    "gradient_variance",
    "inner_product",
    "sign",
    "cosine",
    "gradient_confusion",
    "noise_scale",
    "label_wave",
    "gwa",
)
"""All that the batch gradients and the training pass itself give."""

SIGNAL = re.compile(r"(?P<label>[^@]+?)(?P<fixed>@fixed)?(@s=(?P<s>[1-9]\d*))?")


class Watched(NamedTuple):
    """A signal of a spec: the signal itself, whether it is measured on fixed batches, and on how many if not on 5."""

    signal: Signal
    fixed: bool = False
    num_batches: int | None = None


def parsed(signal: str) -> Watched:
    """What a label of a spec stands for: `"cosine"`, `"cosine@fixed"`, `"cosine@fixed@s=20"`."""
    match = SIGNAL.fullmatch(signal) if isinstance(signal, str) else None
    if match is None:
        raise ArgumentError(
            f"A signal should be a label such as 'cosine', 'cosine@fixed' or 'cosine@s=20'. Found {signal!r}."
        )
    num_batches = None if match["s"] is None else int(match["s"])
    if num_batches == 1:
        raise ArgumentError(f"At least 2 batches are needed to compare gradients. Found {signal!r}.")
    return Watched(from_label(match["label"]), match["fixed"] is not None, num_batches)
