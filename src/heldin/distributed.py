"""One reading for all ranks of a distributed run.

`together="mean"`: every rank measures on batches of its share of the data, and all ranks continue with the mean of
their readings. `together="exact"`: the s batches are spread over the ranks, and all ranks continue with the reading of
all s gradients. Either way the result is computed from the same numbers in the same order, so values, decisions and
reasons are identical. An exception on one rank is raised on all of them, so that no rank waits for another forever.

For an exact reading both gradients of every pair have to be on one rank. So every rank receives one slice of every
gradient, block by block, and computes its part of the Gram matrix; then s x s numbers are summed. No rank ever holds a
whole gradient of another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed

from heldin.errors import ArgumentError, HeldinError
from heldin.gradients import CHUNK, SLICE, Gradients, Gram, block_products, is_precise
from heldin.types import Reading

Result = TypeVar("Result")
Together = Literal["mean", "exact"]
BLOCK = 2**22  # values of one gradient that are exchanged at a time


def is_distributed() -> bool:
    """True if torch.distributed is initialised."""
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    """The rank of this process."""
    return distributed.get_rank() if is_distributed() else 0


def mean_reading(read: Callable[[], Reading]) -> Reading:
    """Call `read` on every rank and return the mean of the readings, the same on every rank."""
    readings = gather(read)
    labels = readings[0].values
    values = {label: _mean_value([reading.values[label] for reading in readings]) for label in labels}
    sizes = [reading.num_samples for reading in readings]
    return Reading(
        readings[0].epoch,
        values,
        sum(reading.num_batches for reading in readings),
        loss=_mean_value([reading.loss for reading in readings]),
        num_samples=None if None in sizes else sum(size or 0 for size in sizes),
        constant_loss=_mean_value([reading.constant_loss for reading in readings]),
        one_class=None if readings[0].one_class is None else all(reading.one_class for reading in readings),
        learning_rate=readings[0].learning_rate,
    )


def agree(epoch: int, settings: Mapping[str, object], check: Callable[[], None]) -> None:
    """Raise on all ranks unless `check` passes on each, and they are at the same measurement with the same settings."""

    def described() -> tuple[int, dict[str, object]]:
        check()
        return epoch, dict(settings)

    found = gather(described)
    check_epochs([number for number, _ in found])
    for number, (_, others) in enumerate(found):
        for name, value in found[0][1].items():
            if others.get(name) != value:
                raise ArgumentError(
                    f"All ranks should measure in the same way. Found `{name} = {value!r}` on rank 0 and "
                    f"`{name} = {others.get(name)!r}` on rank {number}. Pass the same arguments on every rank."
                )


def check_epochs(epochs: list[int]) -> None:
    """Raise unless the ranks are at the same measurement."""
    if len(set(epochs)) > 1:
        raise HeldinError(
            f"All ranks should be at the same measurement. Found them at {epochs}: they were not resumed from the same "
            "checkpoint, or not all of them call step()."
        )


def gather(function: Callable[[], Result]) -> list[Result]:
    """Call `function` on every rank and return the results of all ranks; an exception on one is raised on all."""
    result: Result | None = None
    error: Exception | None = None
    try:
        result = function()
    except Exception as found:
        error = found
    outcomes: list[Any] = gather_objects((result, None if error is None else f"{type(error).__name__}: {error}"))
    if error is not None:
        raise error
    for number, (_, problem) in enumerate(outcomes):
        if problem is not None:
            raise HeldinError(f"Rank {number} failed in step(), so all ranks stop. Its error: {problem}")
    return [outcome for outcome, _ in outcomes]


def gather_objects(value: Result) -> list[Result]:
    """The values of all ranks: small objects."""
    values: list[Any] = [None] * distributed.get_world_size()
    with explained():
        distributed.all_gather_object(values, value)
    return values


@contextmanager
def explained() -> Iterator[None]:
    """Explain the error of an exchange in which another rank does not take part."""
    try:
        yield
    except RuntimeError as error:
        # torch has no class for errors of gloo; other backends raise a DistError.
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        raise HeldinError(
            "All ranks should take part in a measurement until its end. Found one that ended, or that did not answer "
            f"within the timeout of the process group. Look for its error in its output. Here: {error}"
        ) from error


class Ranks:
    """The ranks of an exact reading: each has the gradients of some of the s batches."""

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        self.num_ranks = distributed.get_world_size()

    def part(self) -> slice:
        """Which of s batches belong to this rank."""
        return slice(self.rank, None, self.num_ranks)

    def gather(self, value: Result) -> list[Result]:
        """The values of all ranks: small objects."""
        return gather_objects(value)

    def guarded(self, function: Callable[[], Result]) -> Result:
        """Call `function` on every rank; an error of heldin on one of them is raised, as the same class, on all."""
        result: list[Result] = []
        error: Exception | None = None
        try:
            result.append(function())
        except Exception as found:
            error = found
        problem = None if error is None else (type(error), f"{type(error).__name__}: {error}")
        problems = self.gather(
            problem if problem is None or issubclass(problem[0], HeldinError) else (None, problem[1])
        )
        if error is not None:
            raise error
        for number, other in enumerate(problems):
            if other is not None:
                message = f"Rank {number} failed in step(), so all ranks stop. Its error: {other[1]}"
                raise (other[0] or HeldinError)(message)
        return result[0]

    @torch.no_grad()
    def gram(self, gradients: Gradients, device: torch.device, *, inner: bool = False) -> Gram:
        """The Gram matrix of the gradients of all ranks, the same on every rank.

        Bytes sent by each rank: about 4 d s / w for w ranks. Memory: two blocks of at most 4 million values per
        gradient of this rank.
        """
        kinds = [part.dtype for row in gradients.rows for part in row if part is not None]
        described = self.gather((gradients.num_samples, gradients.losses, torch.float64 in kinds))
        counts = [len(numbers) for numbers, _, _ in described]
        dtype = torch.float64 if any(double for _, _, double in described) else torch.float32
        total = self._products(gradients, counts, inner, dtype, device)
        if dtype is not torch.float64 and not is_precise(total, inner=inner):  # all ranks have the same total
            device = torch.device("cpu") if device.type == "mps" else device
            total = self._products(gradients, counts, inner, torch.float64, device)
        num_samples = tuple(number for numbers, _, _ in described for number in numbers)
        losses = tuple(loss for _, some, _ in described for loss in some)
        return Gram.from_products(total, gradients.num_parameters, sum(counts), num_samples, losses, inner=inner)

    def _products(
        self, gradients: Gradients, counts: list[int], inner: bool, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Products of g_1 - g_0, g_2 - g_0, ..., preceded by g_0 if `inner`, over all parameters."""
        width = self._width(sum(gradients.sizes))
        num_rows = sum(counts) if inner else sum(counts) - 1
        total = torch.zeros(num_rows, num_rows, dtype=torch.float64, device="cpu")
        received = torch.empty(sum(counts), width, dtype=dtype, device=device)
        for block in self._blocks(gradients, width, dtype, device):  # (number of ranks, own gradients, width)
            distributed.all_to_all_single(
                received.view(-1),
                block.view(-1),
                [count * width for count in counts],
                [len(gradients.rows) * width] * self.num_ranks,
            )
            received[1:] -= received[:1]
            total += block_products(received if inner else received[1:])
        return torch.stack(self.gather(total)).sum(0)  # in the same order on every rank

    def _width(self, length: int) -> int:
        """The number of values of each gradient that a rank receives at a time: a whole number of slices."""
        width = min(CHUNK, -(-length // self.num_ranks), BLOCK // self.num_ranks)
        return max(1, -(-width // SLICE)) * SLICE

    def _blocks(self, gradients: Gradients, width: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
        """This rank's gradients, cut into slices for all ranks; the last block is padded with 0."""
        block = torch.zeros(self.num_ranks, gradients.num_batches, width, dtype=dtype, device=device)
        filled, room = 0, self.num_ranks * width
        for number, size in enumerate(gradients.sizes):
            start = 0
            while start < size:
                step = min(size - start, width - filled % width)
                target = block[filled // width, :, filled % width : filled % width + step]
                for values, row, scale in zip(target, gradients.rows, gradients.scales, strict=True):
                    part = row[number]
                    if part is None:
                        values.zero_()
                    else:
                        values.copy_(part.reshape(-1)[start : start + step]).mul_(scale)
                start, filled = start + step, filled + step
                if filled == room:
                    yield block
                    filled = 0
        if filled:
            block[filled // width, :, filled % width :] = 0.0
            block[filled // width + 1 :] = 0.0
            yield block


def _mean_value(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if not all(map(math.isfinite, known)):
        return math.nan
    return statistics.mean(known)  # exact: equal values stay equal, large ones do not overflow
