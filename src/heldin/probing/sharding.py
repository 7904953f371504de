"""Models whose parameters are sharded over ranks: FSDP2 (`fully_shard`) and other DTensors.

Every rank runs the model on its own samples, and gets its shard of the gradient of the mean over all ranks. So batch j
of a reading is made of the j-th batches of all ranks, as a step of training is. Its losses are gathered before they are
re-scaled, and the Gram matrices of the shards are summed: m + s x s numbers per batch and reading are exchanged beside
what a training step exchanges. Ranks that share their samples (tensor parallel) count once.

FSDP writes gradients to `.grad`: those of training are put aside meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from heldin.distributed import Ranks
from heldin.errors import ArgumentError, NotFiniteError
from heldin.gradients import Gradients, Gram, Row, as_real
from heldin.probing.isolation import undoing

LOGGER = logging.getLogger("heldin")


def is_sharded(model: nn.Module) -> bool:
    """True if parameters of the model are DTensors."""
    return any(hasattr(parameter, "placements") for parameter in model.parameters())


def local_shard(parameter: Any) -> Tensor:
    """The part of a parameter that this rank has."""
    shard: Tensor = parameter.to_local() if hasattr(parameter, "placements") else parameter
    return shard


class Shards(Ranks):
    """The ranks of a sharded model: each has a shard of every gradient."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        groups = [group for module in self._wrapped() for group in _parameter_groups(module)]
        meshes = [group.mesh_info for group in groups]
        self.samples = _samples_of(meshes[0]) if meshes else (0, 0)  # ranks with the same number share their samples
        for group in groups:
            if group.gradient_divide_factor is not None:
                raise ArgumentError(
                    "Gradients of a sharded model should be divided by the number of ranks, which is the default. "
                    "Found set_gradient_divide_factor(). Leave it out."
                )

    def part(self) -> slice:
        """Every rank has a part of each batch."""
        return slice(None)

    def guarded_pass(self, loss: Callable[[], Tensor]) -> Tensor:
        """`guarded` for a forward pass. An error is logged before it is exchanged.

        The other ranks may wait in an exchange of the model itself; then this process is aborted.
        """

        def logged() -> Tensor:
            try:
                return loss()
            except NotFiniteError:  # after the pass: all ranks are here
                raise
            except Exception:
                LOGGER.exception("Rank %d failed in a forward pass of the sharded model.", self.rank)
                raise

        return self.guarded(logged)

    def gather_losses(self, losses: Tensor) -> tuple[Tensor, slice, int]:
        """The losses of a batch on all ranks (m,), which of them are of this rank, and the number of parts."""
        parts = dict(sorted(self.gather((self.samples, losses)), key=lambda part: part[0]))
        starts, end = {}, 0
        for number, part in parts.items():
            starts[number] = end
            end += len(part)
        own = slice(starts[self.samples], starts[self.samples] + len(losses))
        return torch.cat(list(parts.values())), own, len(parts)

    def gradient(self, losses: Tensor, weights: Tensor, parameters: Sequence[nn.Parameter], *, keep_graph: bool) -> Row:
        """This rank's shard of the gradient of the sum of `weights` * `losses` over all ranks, divided by their number.

        Each part is multiplied by a number that makes the sum over all ranks count every value once.
        """
        losses.backward(weights.to(losses), retain_graph=keep_graph)  # type: ignore[no-untyped-call]
        row = tuple(None if parameter.grad is None else self._shard(parameter) for parameter in parameters)
        for parameter in self.model.parameters():
            parameter.grad = None
        return row

    def _shard(self, parameter: Any) -> Tensor:
        grad, num_copies = parameter.grad, self.num_ranks
        if hasattr(parameter, "placements"):
            if grad.placements != parameter.placements:
                grad = grad.redistribute(placements=parameter.placements)
            sizes = zip(parameter.placements, parameter.device_mesh.shape, strict=True)
            num_copies = math.prod(size for placement, size in sizes if placement.is_replicate())
            grad = grad.to_local()
        elif self._wrapped():  # FSDP leaves it alone: each rank has the gradient of its samples
            grad = grad.clone()
            torch.distributed.all_reduce(grad)
            grad /= self.num_ranks
        real = as_real(grad)
        return real if num_copies == 1 else real / math.sqrt(num_copies)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Put gradients of training aside, and the hooks that use them; shard all parameters again on exit."""
        self._refuse_accumulation()
        with undoing() as undo:
            for parameter in self.model.parameters():
                undo.callback(setattr, parameter, "grad", parameter.grad)
                undo.callback(setattr, parameter, "_post_accumulate_grad_hooks", parameter._post_accumulate_grad_hooks)
                parameter.grad = None
                parameter._post_accumulate_grad_hooks = None  # type: ignore[assignment]
            for module in self._wrapped():
                undo.callback(module.reshard)
            yield

    def gram(self, gradients: Gradients, device: torch.device, *, inner: bool = False) -> Gram:
        """The sum of the Gram matrices of all shards, the same on every rank."""
        total = torch.stack(self.gather(gradients.products(inner=inner))).sum(0)
        return Gram.from_products(
            total,
            gradients.num_parameters,
            gradients.split,
            gradients.num_samples,
            gradients.losses,
            inner=inner,
        )

    def _wrapped(self) -> list[Any]:
        """The modules that `fully_shard` was called with."""
        return [module for module in self.model.modules() if hasattr(module, "_get_fsdp_state")]

    def _refuse_accumulation(self) -> None:
        groups = [group for module in self._wrapped() for group in _parameter_groups(module)]
        pending = any(parameter.unsharded_accumulated_grad is not None for g in groups for parameter in g.fsdp_params)
        if pending or not all(group.reduce_grads for group in groups):
            raise ArgumentError(
                "A sharded model should be measured after an optimizer step. Found gradients that are being "
                "accumulated without exchange (set_requires_gradient_sync(False)). Call step() after optimizer.step(), "
                "with set_requires_gradient_sync(True)."
            )


def _parameter_groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]  # torch before 2.12


def _samples_of(mesh: Any) -> tuple[int, int]:
    """The place of this rank among those that have different samples."""
    return getattr(mesh, "replicate_mesh_rank", 0), getattr(mesh, "shard_mesh_rank", 0)
