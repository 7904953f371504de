"""The gradients of single samples, for any model: a few samples at a time, never all of them.

A `vmap` over the samples of a chunk, each a batch of its own; where a model does not go through one (it looks at
values, changes tensors in place, uses an operation without a batching rule), one sample after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from heldin.errors import HeldinWarning, LossError
from heldin.probing.backward import derivatives, in_reals
from heldin.probing.probe import Probe
from heldin.probing.samples import Rebuild, taken_apart

CHUNK_BYTES = 64 * 2**20
CHUNK_SAMPLES = 4  # at least, however large the model
ONE_BY_ONE = "one_by_one"


def chunk_size(num_samples: int, parameters: Sequence[nn.Parameter]) -> int:
    """How many samples at a time: their gradients fill at most 64 MB, or there are four; chunks of like size."""
    sample_bytes = sum(p.numel() * p.element_size() for p in parameters)
    size = min(num_samples, max(CHUNK_SAMPLES, CHUNK_BYTES // max(1, sample_bytes)))
    num_chunks = -(-num_samples // size)
    return -(-num_samples // num_chunks)


def chunked_gradients(
    probe: Probe, batch: Any, num_samples: int, parameters: Sequence[nn.Parameter]
) -> Iterator[list[Tensor]]:
    """For each chunk of c samples, in order, the gradients of each parameter: (c, *shape). Inside a session."""
    rows, rebuild = taken_apart(batch, num_samples)
    size = chunk_size(num_samples, parameters)
    together = _together(probe, rebuild, parameters)
    for start in range(0, num_samples, size):
        chunk = [tensor[start : start + size] for tensor in rows]
        found = None
        if ONE_BY_ONE not in probe._warned:
            try:
                found = together(chunk)
            except (
                Exception
            ) as error:  # whatever a model may raise inside a vmap; if it is its own fault, so it will below
                problem = f"{type(error).__name__}: {error}".split("\n")[0][:200]
                found = _one_by_one(probe, chunk, rebuild, parameters)
                probe._warned.add(ONE_BY_ONE)
                warnings.warn(
                    "Gradients of single samples are taken one sample at a time, which is slow: the model does not "
                    f"go through torch.func.vmap ({problem}). The numbers are the same. This is said once.",
                    HeldinWarning,
                    stacklevel=2,
                )
        yield _one_by_one(probe, chunk, rebuild, parameters) if found is None else found


class _SampleLoss(nn.Module):
    """The loss of a batch of one, as a module that holds the model: so its parameters can be stood in for."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.model = probe.model
        self.probe = probe

    def forward(self, batch: Any) -> Tensor:
        return _only(self.probe.losses(batch, check=False))


def _together(
    probe: Probe, rebuild: Rebuild, parameters: Sequence[nn.Parameter]
) -> Callable[[list[Tensor]], list[Tensor]]:
    """The function from c samples to their gradients, all at once."""
    module = _SampleLoss(probe)
    names = {parameter: name for name, parameter in module.named_parameters()}
    values = {names[parameter]: parameter.detach() for parameter in parameters}

    def loss(values: dict[str, Tensor], sample: list[Tensor]) -> Tensor:
        batch = rebuild([tensor.unsqueeze(0) for tensor in sample])
        found: Tensor = functional_call(module, values, (batch,))
        return found

    each = vmap(grad(loss), in_dims=(None, 0), randomness="different")

    def together(chunk: list[Tensor]) -> list[Tensor]:
        with torch.no_grad(), warnings.catch_warnings():
            # An operation that torch itself takes sample by sample: its affair, and the numbers are right.
            warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
            found = each(values, chunk)
        return [in_reals(found[names[parameter]]) for parameter in parameters]

    return together


def _one_by_one(
    probe: Probe, chunk: list[Tensor], rebuild: Rebuild, parameters: Sequence[nn.Parameter]
) -> list[Tensor]:
    """The same gradients by a forward and backward pass a sample."""
    num = chunk[0].shape[0]
    found = [in_reals(torch.zeros((num, *p.shape), dtype=p.dtype, device=p.device)) for p in parameters]
    for number in range(num):
        loss = _only(probe.losses(rebuild([tensor[number : number + 1] for tensor in chunk]), check=False))
        if not loss.requires_grad:  # this sample's loss does not depend on the model
            continue
        for rows, part in zip(found, derivatives(loss, parameters), strict=True):
            if part is not None:
                rows[number] = in_reals(part)
    return found


def _only(losses: Tensor) -> Tensor:
    if losses.numel() != 1:
        raise LossError(
            f"A batch of one sample should have one loss. Found {losses.numel()}. Check that the first dimension of "
            "every tensor in a batch is the sample, or pass sample_losses=f with f(model, batch) -> (m,)."
        )
    return losses.sum()
