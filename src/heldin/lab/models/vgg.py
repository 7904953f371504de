"""VGG networks with BatchNorm for 3 x 32 x 32 images, with a single linear layer on top."""

from torch import nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width

STAGE_WIDTHS = (64, 128, 256, 512, 512)

# Convolutions in each stage; every stage ends by halving the image.
STAGE_LENGTHS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def vgg(depth: int, num_classes: int = 10, *, scale: float = 1.0) -> nn.Sequential:
    """Build a VGG with BatchNorm for 3 x 32 x 32 images: 9.2 million parameters for VGG-11 at `scale = 1`.

    Args:
        depth: 11, 13, 16 or 19: the layers with weights in the original, which had three linear ones.
        num_classes: The number of logits.
        scale: Multiplies the channels of every layer.

    Returns:
        A network from `(m, 3, 32, 32)` images to `(m, num_classes)` logits.

    Raises:
        ArgumentError: If there is no VGG of this depth, `num_classes` is not a positive integer, or
            `scale` leaves a layer without channels.

    Example:
        >>> sum(p.numel() for p in vgg(11).parameters())
        9231114
    """
    if depth not in STAGE_LENGTHS:
        raise ArgumentError(
            f"Parameter `depth` should be 11, 13, 16 or 19. Found `depth = {depth!r}`. Pass one of these."
        )
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    layers: list[nn.Module] = []
    channels = 3
    for width, length in zip(STAGE_WIDTHS, STAGE_LENGTHS[depth], strict=True):
        for _ in range(length):
            layers += _convolution(channels, scaled_width(width, scale))
            channels = scaled_width(width, scale)
        layers.append(nn.MaxPool2d(2))
    # One pixel is left of the 32 x 32.
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, num_classes))


def _convolution(in_channels: int, out_channels: int) -> list[nn.Module]:
    return [nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels), nn.ReLU()]
