"""Fully connected networks: the paper's smallest family, for MNIST and CIFAR-10."""

from torch import nn

from heldin.errors import require_integer


def fully_connected(
    input_size: int,
    num_classes: int,
    *,
    depth: int = 4,
    width: int = 500,
    batch_norm: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Build a fully connected network with ReLU: `depth` hidden layers, then one linear layer.

    It takes `(m, ...)` samples of `input_size` numbers each; `width` is the number of units of a hidden layer. In a
    hidden layer BatchNorm comes before ReLU, and dropout after it.

    Examples:
        >>> network = fully_connected(784, 10)
        >>> sum(p.numel() for p in network.parameters())
        1149010
    """
    require_integer("input_size", input_size, at_least=1, remedy="Pass the size of one flattened sample.")
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    require_integer("depth", depth, at_least=1, remedy="Pass 1 for a single hidden layer.")
    require_integer("width", width, at_least=1, remedy="Pass the units of a hidden layer.")
    layers: list[nn.Module] = [nn.Flatten()]  # (m, input_size)
    for layer in range(depth):
        layers += [
            nn.Linear(width if layer else input_size, width),  # (m, width)
            *activation(nn.BatchNorm1d(width) if batch_norm else None, dropout),
        ]
    layers.append(nn.Linear(width, num_classes))  # (m, num_classes)
    return nn.Sequential(*layers)


def activation(norm: nn.Module | None, dropout: float) -> list[nn.Module]:
    """What follows a linear or convolutional layer: the norm, if any, ReLU, and dropout, if it is above 0."""
    return [*([] if norm is None else [norm]), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
