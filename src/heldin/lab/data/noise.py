"""Label noise, as in the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.errors import ArgumentError, require_integer, require_number
from heldin.probing.randomness import seed_for


def corrupt(labels: Tensor, fraction: float, num_classes: int, seed: int) -> Tensor:
    """Replace the labels of a fraction of the samples by uniform draws from all classes; some stay correct.

    With the same seed, the samples changed by 25 % of noise are among those changed by 50 %, with the same new labels.

    Args:
        labels: `(n,)`, from 0 to `num_classes - 1`; not modified.
        fraction: The fraction of replaced labels: 0.5 for the paper's "50 % random labels".
        num_classes: The number of classes.
        seed: The result is a function of it alone.

    Returns:
        The labels, `(n,)`; on average a share 1 - fraction + fraction / num_classes of them is correct.

    Raises:
        ArgumentError: If `fraction` is not between 0 and 1, or a label is not below `num_classes`.

    Example:
        >>> corrupt(torch.zeros(8, dtype=torch.int64), 0.5, 10, seed=0)
        tensor([7, 0, 0, 0, 6, 0, 2, 5])
    """
    require_number("fraction", fraction, at_least=0, remedy="Pass 0.5 for 50 % of random labels.")
    if fraction > 1:
        raise ArgumentError(
            f"Parameter `fraction` should be at most 1. Found `fraction = {fraction!r}`. Pass 0.5 for 50 %."
        )
    require_integer("num_classes", num_classes, at_least=1, remedy="Pass the number of classes.")
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ArgumentError(
            f"Parameter `labels` should be integers (n,). Found {labels.dtype} of shape {tuple(labels.shape)}."
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ArgumentError(
            f"Parameter `labels` should be from 0 to {num_classes - 1}. Found {labels.min()} to {labels.max()}. "
            "Pass the number of classes the labels have."
        )
    # PAPER: the authors' code draws for each sample whether its label is random; we take the exact fraction, as in
    # the text. Both draw the labels from all classes.
    generator = torch.Generator().manual_seed(seed_for(seed, "noise"))
    order = torch.randperm(len(labels), generator=generator)
    drawn = torch.randint(num_classes, (len(labels),), generator=generator)
    replaced = order[: round(fraction * len(labels))]
    noisy = labels.clone()
    noisy[replaced.to(labels.device)] = drawn[replaced].to(labels)
    return noisy
