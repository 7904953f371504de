"""A small convolutional network: two convolutions with pooling and one hidden layer, for images of any size."""

from torch import nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width
from heldin.lab.models.fully_connected import activation


def cnn(
    shape: tuple[int, ...] = (1, 28, 28),
    num_classes: int = 10,
    *,
    scale: float = 1.0,
    batch_norm: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Build a small convolutional network for `(m, *shape)` images: 206.9 thousand parameters for MNIST.

    Its convolutions have 16 and 32 channels and its hidden layer 128 units. `batch_norm` adds BatchNorm after the
    convolutions; `dropout` is applied to the hidden layer.

    Examples:
        >>> sum(p.numel() for p in cnn().parameters())
        206922
    """
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    channels, height, width = shape
    if min(height, width) < 4:
        raise ArgumentError(
            f"The images should have at least 4 x 4 pixels. Found {height} x {width}. Choose another model."
        )
    few, more, hidden = (scaled_width(size, scale) for size in (16, 32, 128))
    return nn.Sequential(
        nn.Conv2d(channels, few, 3, padding=1),  # (m, few, height, width)
        *activation(nn.BatchNorm2d(few) if batch_norm else None, 0.0),
        nn.MaxPool2d(2),
        nn.Conv2d(few, more, 3, padding=1),  # (m, more, height / 2, width / 2)
        *activation(nn.BatchNorm2d(more) if batch_norm else None, 0.0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(more * (height // 4) * (width // 4), hidden),
        *activation(None, dropout),
        nn.Linear(hidden, num_classes),  # (m, num_classes)
    )
