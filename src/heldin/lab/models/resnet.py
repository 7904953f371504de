"""ResNets of basic blocks for 3 x 32 x 32 images: a 3 x 3 convolution without pooling, then four stages."""

from torch import Tensor, nn

from heldin.errors import ArgumentError, require_integer
from heldin.lab.models.alexnet import scaled_width

STAGE_WIDTHS = (64, 128, 256, 512)
STAGE_LENGTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # basic blocks in each stage


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


def resnet(depth: int, num_classes: int = 10, *, scale: float = 1.0) -> nn.Sequential:
    """Build a ResNet for `(m, 3, 32, 32)` images: 11.2 million parameters for ResNet-18 at `scale = 1`.

    `depth` is 18 or 34: the layers with weights, without shortcuts.

    Example:
        >>> sum(p.numel() for p in resnet(18).parameters())
        11173962
    """
    if depth not in STAGE_LENGTHS:
        raise ArgumentError(f"Parameter `depth` should be 18 or 34. Found `depth = {depth!r}`. Pass one of these.")
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    channels = scaled_width(64, scale)
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, 3, padding=1, bias=False),  # (m, 64 * scale, 32, 32)
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    for stage, (stage_width, length) in enumerate(zip(STAGE_WIDTHS, STAGE_LENGTHS[depth], strict=True)):
        width = scaled_width(stage_width, scale)
        for block in range(length):  # every stage but the first begins by halving the image
            layers.append(BasicBlock(channels, width, stride=2 if stage and not block else 1))
            channels = width
    # 4 x 4 pixels are left of the 32 x 32.
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(channels, num_classes))
