"""VGG networks with BatchNorm for 3 x 32 x 32 images, with a single linear layer on top."""

from torch import nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width

STAGE_WIDTHS = (64, 128, 256, 512, 512)
STAGE_LENGTHS = {  # convolutions in each stage; every stage ends by halving the image
    8: (1, 1, 1, 1, 1),
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def vgg(depth: int, num_classes: int = 10, *, scale: float = 1.0) -> nn.Sequential:
    """Build a VGG with BatchNorm for `(m, 3, 32, 32)` images: 9.2 million parameters for VGG-11 at `scale = 1`.

    `depth` is 8, 11, 13, 16 or 19: the layers with weights of the original, which had three linear ones. VGG-8 is
    not of the paper: one convolution per stage, for experiments on small data.

    Examples:
        >>> sum(p.numel() for p in vgg(11).parameters())
        9231114
    """
    if depth not in STAGE_LENGTHS:
        raise ArgumentError(
            f"Parameter `depth` should be 8, 11, 13, 16 or 19. Found `depth = {depth!r}`. Pass one of these."
        )
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    layers: list[nn.Module] = []
    channels = 3
    for stage_width, length in zip(STAGE_WIDTHS, STAGE_LENGTHS[depth], strict=True):
        width = scaled_width(stage_width, scale)
        for _ in range(length):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    # One pixel is left of the 32 x 32.
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, num_classes))
