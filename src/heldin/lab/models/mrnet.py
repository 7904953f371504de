"""The MRNet model: AlexNet's features of every slice of an exam, their maximum over slices, one linear layer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError
from heldin.lab.models.alexnet import scaled_width


class MRNet(nn.Module):
    """Exams (m, slices, 3, h, w) -> scores (m, num_classes)."""

    def __init__(self, num_classes: int = 2, *, scale: float = 1.0) -> None:
        super().__init__()
        a, b, c, d = (scaled_width(width, scale) for width in (64, 192, 384, 256))
        self.features = nn.Sequential(
            nn.Conv2d(3, a, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(a, b, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(b, c, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(d, d, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(d, num_classes)

    def forward(self, exams: Tensor) -> Tensor:
        """The scores of a batch of exams, all with the same number of slices."""
        slices = exams.flatten(0, 1)  # (m * slices, 3, h, w)
        features = self.pool(self.features(slices)).flatten(1).unflatten(0, exams.shape[:2])  # (m, slices, d)
        scores: Tensor = self.classifier(features.amax(1))
        return scores


def mrnet(num_classes: int = 2, *, scale: float = 1.0, pretrained: Path | str | None = None) -> MRNet:
    """Build the MRNet model.

    `pretrained` is a file with the state dict of an ImageNet AlexNet (`features.0.weight`, ...), for scale 1.
    """
    model = MRNet(num_classes, scale=scale)
    if pretrained is not None:
        state = torch.load(pretrained, weights_only=True)
        features = {name: value for name, value in state.items() if name.startswith("features.")}
        try:
            model.load_state_dict(features, strict=False)
        except RuntimeError as error:
            raise ArgumentError(f"{pretrained} should hold the weights of AlexNet at scale 1. {error}") from error
        if not features:
            raise ArgumentError(f"{pretrained} should hold AlexNet's `features`. Found {list(state)[:3]}.")
    return model
