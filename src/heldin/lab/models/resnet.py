"""ResNets of basic blocks for images of any size: a 3 x 3 convolution without pooling, then three or four stages.

ResNet-18 and ResNet-34 are those of the paper. ResNet-8, -14 and -20 have the three stages of 16, 32 and 64 channels
that He et al. (2016) chose for CIFAR-10.
"""

import math

from torch import Tensor, nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width

STAGES = {  # the channels and the number of basic blocks of each stage
    8: ((16, 1), (32, 1), (64, 1)),
    14: ((16, 2), (32, 2), (64, 2)),
    20: ((16, 3), (32, 3), (64, 3)),
    18: ((64, 2), (128, 2), (256, 2), (512, 2)),
    34: ((64, 3), (128, 4), (256, 6), (512, 3)),
}


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with BatchNorm, added to their input; stride 2 halves the image."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = nn.Sequential()  # the identity
        if in_channels != out_channels or stride != 1:
            self.shortcut.append(nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(out_channels))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:  # (m, in, h, w) -> (m, out, h / stride, w / stride)
        """Add the residual to the shortcut, then apply ReLU."""
        total: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return total


def resnet(
    depth: int, num_classes: int = 10, *, scale: float = 1.0, shape: tuple[int, ...] = (3, 32, 32)
) -> nn.Sequential:
    """Build a ResNet for `(m, *shape)` images: 11.2 million parameters for ResNet-18 at `scale = 1`.

    `depth` is 8, 14, 18, 20 or 34: the layers with weights, without shortcuts.

    Examples:
        >>> sum(p.numel() for p in resnet(18).parameters())
        11173962
    """
    if depth not in STAGES:
        raise ArgumentError(
            f"Parameter `depth` should be 8, 14, 18, 20 or 34. Found `depth = {depth!r}`. Pass one of these."
        )
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    channels = scaled_width(STAGES[depth][0][0], scale)
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], channels, 3, padding=1, bias=False),  # (m, channels, height, width)
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    for stage, (stage_width, length) in enumerate(STAGES[depth]):
        width = scaled_width(stage_width, scale)
        for block in range(length):  # every stage but the first begins by halving the image
            layers.append(BasicBlock(channels, width, stride=2 if stage and not block else 1))
            channels = width
    shrink = 2 ** (len(STAGES[depth]) - 1)  # 8 x 8 or 4 x 4 are left of 32 x 32
    left = (math.ceil(shape[1] / shrink), math.ceil(shape[2] / shrink))
    return nn.Sequential(*layers, nn.AvgPool2d(left), nn.Flatten(), nn.Linear(channels, num_classes))
