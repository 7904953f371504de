"""Label noise, as in the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.probing.isolation import derive_seed


def corrupt(labels: Tensor, fraction: float, num_classes: int, seed: int) -> Tensor:
    """Replace the labels of a fraction of the samples by uniform draws from all classes; some stay correct.

    `labels`, `(n,)`, is not modified; `fraction` is 0.5 for the paper's "50 % random labels". With the same seed, the
    samples changed by 25 % of noise are among those changed by 50 %, with the same new labels.

    Examples:
        >>> corrupt(torch.zeros(8, dtype=torch.int64), 0.5, 10, seed=0)
        tensor([7, 0, 0, 0, 6, 0, 2, 5])
    """
    # PAPER: the authors' code draws for each sample whether its label is random; we take the exact fraction, as in
    # the text. Both draw the labels from all classes.
    generator = torch.Generator().manual_seed(derive_seed(seed, "noise"))
    order = torch.randperm(len(labels), generator=generator)
    drawn = torch.randint(num_classes, (len(labels),), generator=generator)
    replaced = order[: round(fraction * len(labels))]
    noisy = labels.clone()
    noisy[replaced.to(labels.device)] = drawn[replaced].to(labels)
    return noisy
