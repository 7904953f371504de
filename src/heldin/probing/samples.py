"""Single samples out of a batch of any structure.

A tensor whose first dimension is as long as the batch has samples holds one row a sample; everything else belongs to
all samples alike and is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from heldin.errors import BatchesError
from heldin.probing.structure import changed, tensors_in

Rebuild = Callable[[Sequence[Tensor]], Any]


def taken_apart(batch: Any, num_samples: int) -> tuple[list[Tensor], Rebuild]:
    """The tensors with one row a sample, and the function that makes a batch of the same structure of others.

    Raises:
        BatchesError: no tensor in the batch has `num_samples` rows.
    """
    rows = [tensor for tensor in tensors_in(batch) if _has_rows(tensor, num_samples)]
    if not rows:
        raise BatchesError(
            f"A batch should hold a tensor with one row for each of its {num_samples} samples, so that single samples "
            f"can be taken from it. Found none in a {type(batch).__name__}. Put tensors whose first dimension is the "
            "sample into a tuple, a list or a dictionary, and let sample_losses make of them what the model takes."
        )

    def rebuild(others: Sequence[Tensor]) -> Any:
        stream: Iterator[Tensor] = iter(others)
        return changed(batch, lambda tensor: next(stream) if _has_rows(tensor, num_samples) else tensor)

    return rows, rebuild


def subset(batch: Any, num_samples: int, index: Tensor | slice) -> Any:
    """The batch of just these samples."""
    rows, rebuild = taken_apart(batch, num_samples)
    return rebuild([tensor[index] for tensor in rows])


def _has_rows(tensor: Tensor, num_samples: int) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] == num_samples
