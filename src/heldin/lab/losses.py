"""The losses of the experiments, each with a `reduction`, so that signals can ask for one value a sample."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from heldin.errors import require_choice


class OneHotMSE(nn.Module):
    """Mean squared error of the outputs against one-hot targets."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Outputs (m, C) and classes (m,) -> a number, or (m,) with reduction="none"."""
        wanted = F.one_hot(target, output.shape[1]).to(output.dtype)
        losses = (output - wanted).square().mean(1)
        return losses if self.reduction == "none" else losses.mean()


def build_loss(name: str) -> nn.Module:
    """The loss of that name."""
    require_choice("loss", name, ("cross_entropy", "mse"))
    return nn.CrossEntropyLoss() if name == "cross_entropy" else OneHotMSE()
