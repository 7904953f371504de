"""LeNet-5 with ReLU and max pooling, for images of at least 12 x 12 pixels."""

from torch import nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width


def lenet(shape: tuple[int, ...] = (1, 28, 28), num_classes: int = 10, *, scale: float = 1.0) -> nn.Sequential:
    """Build a LeNet-5 for `(m, *shape)` images: 61.7 thousand parameters for gray images at `scale = 1`.

    Examples:
        >>> sum(p.numel() for p in lenet().parameters())
        61706
    """
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    channels, height, width = shape
    if min(height, width) < 12:
        raise ArgumentError(
            f"The images should have at least 12 x 12 pixels. Found {height} x {width}. Choose another model."
        )
    few, more, hidden, last = (scaled_width(size, scale) for size in (6, 16, 120, 84))
    return nn.Sequential(
        nn.Conv2d(channels, few, 5, padding=2),  # (m, few, height, width)
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(few, more, 5),  # (m, more, height / 2 - 4, width / 2 - 4)
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(more * (height // 4 - 2) * (width // 4 - 2), hidden),
        nn.ReLU(),
        nn.Linear(hidden, last),
        nn.ReLU(),
        nn.Linear(last, num_classes),  # (m, num_classes)
    )
