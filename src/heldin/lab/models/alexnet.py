"""The paper's AlexNet for MNIST: five convolutions and three linear layers over 1 x 28 x 28 images."""

import math

from torch import nn

from heldin.errors import ArgumentError, require_integer

MAX_WIDTH = 10**6


def scaled_width(width: int, scale: float) -> int:
    """Multiply a number of channels or hidden units by the paper's scaling factor, rounded to the nearest integer."""
    if not math.isfinite(scale) or round(width * scale) < 1:
        raise ArgumentError(
            "Parameter `scale` should be a finite positive number that leaves each layer a channel. "
            f"Found `scale = {scale!r}` for a layer of {width}. "
            f"Pass 1.0 for the original widths, and no less than {1 / width:.3g} here."
        )
    if (scaled := round(width * scale)) > MAX_WIDTH:
        raise ArgumentError(
            f"Parameter `scale` should give a layer at most {MAX_WIDTH:,} channels or units. Found `scale = {scale!r}` "
            f"for a layer of {width}. Pass 1.0 for the original widths."
        )
    return scaled


def alexnet(num_classes: int = 10, *, scale: float = 1.0) -> nn.Sequential:
    """Build the AlexNet for `(m, 1, 28, 28)` images: 20.1 million parameters at `scale = 1`.

    Examples:
        >>> sum(p.numel() for p in alexnet().parameters())
        20125386
    """
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    h = scaled_width(64, scale)
    # PAPER: the text scales channels and hidden units; the authors' code keeps 4096 units throughout.
    # We follow the text: a narrow network is then narrow in every layer. At scale 1 both are the same.
    units = scaled_width(4096, scale)
    return nn.Sequential(
        nn.Conv2d(1, h, 3, stride=2, padding=1),  # (m, h, 14, 14)
        nn.ReLU(),
        nn.MaxPool2d(2),  # (m, h, 7, 7)
        nn.Conv2d(h, 3 * h, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (m, 3h, 3, 3)
        nn.Conv2d(3 * h, 6 * h, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6 * h, 4 * h, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4 * h, 4 * h, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (m, 4h, 1, 1)
        nn.Flatten(),  # (m, 4h)
        nn.Dropout(),
        nn.Linear(4 * h, units),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(units, units),
        nn.ReLU(),
        nn.Linear(units, num_classes),  # (m, num_classes)
    )
