"""Slow, literal implementations of all signals, for tests.

Functions take gradients G of shape (s, d), or run plain backward passes; sums are in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn


def gradient_disparity(G: Tensor) -> float:
    """Mean distance over the unordered pairs of rows."""
    return fmean(distance(a, b) for a, b in combinations(G, 2))


def train_val_disparity(G: Tensor, H: Tensor) -> float:
    """Mean distance over all pairs of a row of G and a row of H."""
    return fmean(distance(a, b) for a, b in product(G, H))


def batch_gradients(
    model: nn.Module,
    sample_loss: Callable[[Tensor, Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    rescale: str,
    pool: Iterable[tuple[Tensor, Tensor]] | None = None,
) -> Tensor:
    """G (s, d): one backward pass per batch. It changes `.grad`."""
    batches = list(batches)
    rows = []
    for x, y in batches:
        model.zero_grad()
        losses = sample_loss(model(x), y)
        scaled_loss(losses, rescale).backward()  # type: ignore[no-untyped-call]
        parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters() if p.requires_grad]
        rows.append(torch.cat([part.to_dense().reshape(-1) for part in parts]).double())
    if rescale == "grad_std":
        rows = [row / row.std() for row in rows]
    if rescale == "pooled_std":
        losses = torch.cat([sample_loss(model(x), y) for x, y in (batches if pool is None else pool)])
        rows = [row / losses.detach().double().std(correction=0) for row in rows]
    return torch.stack(rows)


def scaled_loss(losses: Tensor, rescale: str) -> Tensor:
    """The scalar that is differentiated; `grad_std` and `pooled_std` divide afterwards."""
    if rescale == "std":
        losses = losses / losses.std()
    elif rescale == "std_detached":
        losses = losses / losses.std().detach()
    elif rescale == "mean":
        losses = losses / losses.mean().detach()
    elif rescale == "minmax":
        losses = (losses - losses.min()) / (losses.max() - losses.min())
    return losses.mean()


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b||, in double precision."""
    return float(((a.double() - b.double()) ** 2).sum().sqrt())


def gradient_variance(G: Tensor) -> float:
    """Variance over the rows (ddof 1), summed over coordinates."""
    return float(G.double().var(0).sum())


def inner_product(G: Tensor) -> float:
    """Mean inner product over the unordered pairs of rows."""
    return fmean(float(a @ b) for a, b in combinations(G.double(), 2))


def sign(G: Tensor) -> float:
    """Mean sign of the inner product over the unordered pairs of rows."""
    return fmean(float(torch.sign(a @ b)) for a, b in combinations(G.double(), 2))


def cosine(G: Tensor) -> float:
    """Mean cosine over the unordered pairs of rows."""
    return fmean(float(a @ b / (a.norm() * b.norm())) for a, b in combinations(G.double(), 2))


def gradient_confusion(G: Tensor, of: str) -> float:
    """Minus the smallest agreement over the unordered pairs of rows."""
    return -min((cosine if of == "cosine" else inner_product)(torch.stack(pair)) for pair in combinations(G, 2))


def noise_scale(G: Tensor, unbiased: bool) -> float:
    """Variance divided by squared norm, for per-sample gradients."""
    return gradient_variance(G) / (inner_product(G) if unbiased else float((G.double().mean(0) ** 2).sum()))


def evidence_based(G: Tensor) -> float:
    """One minus the mean of n mean^2 / variance (ddof 1), over columns that are not constant."""
    live = G.double()[:, (G[0] != G).any(0)]
    return 1.0 - float((len(live) * live.mean(0) ** 2 / live.var(0)).mean())


def gsnr(G: Tensor, ratio_of_sums: bool = False) -> float:
    """Mean of mean^2 / variance (ddof 0), over columns that are not constant; or the ratio of sums over all columns."""
    live = G.double() if ratio_of_sums else G.double()[:, (G[0] != G).any(0)]
    above, below = live.mean(0) ** 2, live.var(0, correction=0)
    return float(above.sum() / below.sum() if ratio_of_sums else (above / below).mean())


def coherence(G: Tensor) -> float:
    """||sum of rows||^2 / sum of ||row||^2."""
    return float((G.double().sum(0) ** 2).sum() / (G.double() ** 2).sum())


def class_alignment(G: Tensor, labels: Tensor) -> float:
    """Mean inner product over pairs of rows of a class, over the square of their mean norm; mean over classes."""
    groups = [G.double()[labels == label] for label in sorted(set(labels.tolist())) if (labels == label).sum() >= 2]
    return fmean(inner_product(rows) / float(rows.norm(dim=1).mean()) ** 2 for rows in groups)


def stiffness(G: Tensor, labels: Tensor) -> float:
    """Mean cosine over pairs of rows of a class that are not zero; mean over classes."""
    live = G.double().norm(dim=1) > 0
    groups = [G[live & (labels == label)] for label in sorted(set(labels.tolist()))]
    return fmean(cosine(rows) for rows in groups if len(rows) >= 2)


def sample_gradients(model: nn.Module, sample_loss: Callable[[Any, Any], Tensor], batch: Any) -> Tensor:
    """G (n, d) of an (inputs, targets) batch: one backward pass per sample, in evaluation mode. It changes `.grad`."""
    x, y = batch
    model.eval()
    return torch.cat(
        [batch_gradients(model, sample_loss, [(x[i : i + 1], y[i : i + 1])], "none") for i in range(len(y))]
    )


def optimization_variance(outputs: Tensor) -> float:
    """From outputs (s, n, ...) after a step on each of s batches."""
    ratios = []
    for x in range(outputs.shape[1]):
        after = [outputs[b, x].double().flatten() for b in range(len(outputs))]
        centre = torch.stack(after).mean(0)
        variance = fmean(float(((f - centre) ** 2).sum()) for f in after)
        ratios.append(variance / fmean(float((f**2).sum()) for f in after))
    return fmean(ratios)


def label_wave(before: Tensor, now: Tensor) -> int:
    """The number of samples whose class differs between two outputs (n, C)."""
    return sum(int(a.argmax()) != int(b.argmax()) for a, b in zip(before, now, strict=True))


def alignment(z: Tensor, weight: Tensor, delta: Tensor) -> float:
    """The cosine between the negative gradient of one sample in a linear layer and its weights."""
    gradient = torch.outer(delta, z)
    product = float(gradient.norm() * weight.norm())
    return -float((gradient * weight).sum()) / product if product > 0 else 0.0


def gradient_weight_alignment(gamma: Sequence[float], beta: float = 1.2) -> float:
    """The mean divided by the biased excess kurtosis plus beta."""
    centre = fmean(gamma)
    second = fmean((value - centre) ** 2 for value in gamma)
    fourth = fmean((value - centre) ** 4 for value in gamma)
    return centre / (fourth / second**2 - 3.0 + beta)


def susceptibility(losses: Sequence[tuple[float, float]]) -> float:
    """The mean drop of the loss."""
    return fmean(before - after for before, after in losses)


def prediction_variance(window: Sequence[Tensor]) -> float:
    """From the outputs (n, ...) of the readings in the window."""
    values = []
    for sample in zip(*window, strict=True):
        centre = sum(f.double() for f in sample) / len(sample)
        values.append(fmean(float(((f.double() - centre) ** 2).sum()) for f in sample))
    return fmean(values)
