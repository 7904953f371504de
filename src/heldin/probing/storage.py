"""How the gradient of a batch is held until it is compared with the others: in full, in bfloat16, or as a sketch.

For the last two, the part of each parameter is reduced as soon as the backward pass has computed it, and released. So
a whole gradient never exists. Nothing is written to `.grad`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, require_choice, require_integer
from heldin.gradients import Row, as_real
from heldin.probing.isolation import derive_seed
from heldin.probing.rescaling import Moments, moments_of, std_of_moments

StorageName = Literal["full", "bf16", "sketch"]
STORAGES: tuple[StorageName, ...] = get_args(StorageName)
NUM_OFFSETS = 8  # the row of signs is this many times longer than a piece; two pieces seldom have the same signs
Group: TypeAlias = tuple[torch.device, torch.dtype]


@dataclass(frozen=True)
class Sketch:
    """A random projection of gradients to `size` numbers, under which distances are nearly the same.

    The gradient of each parameter is cut into pieces of `size` numbers. Every number is multiplied by a random sign,
    and every piece is added to the sketch at a random cyclic shift: a count sketch in which numbers of one piece never
    collide. It is linear and follows from the seed, so all gradients of all readings are projected in the same way.

    Error:
        For a given pair of gradients the squared distance is unbiased, with a relative standard deviation of
        sqrt(2 / size). A distance has half of it, sqrt(1 / (2 size)): 0.28 % for 65,536 numbers. It is smaller where
        few numbers make up most of a gradient, and at most 6 % larger where pieces repeat. Inner products of
        nearly orthogonal gradients have an error of ||g_i|| ||g_j|| sqrt(1 / size), which is large compared with them.
    Cost:
        one read of the gradient; `size` numbers per gradient in single precision.

    Args:
        size: k, the numbers per gradient. Gradients of at most as many numbers are held in full.
        seed: seed of signs and shifts.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.ReLU(), torch.nn.Linear(200, 3))
        >>> batches = [(torch.randn(16, 100), torch.randint(3, (16,))) for _ in range(5)]
        >>> full = heldin.measure(model, torch.nn.CrossEntropyLoss(), batches)["gradient_disparity"]
        >>> sketch = heldin.Sketch(size=4096)
        >>> found = heldin.measure(model, torch.nn.CrossEntropyLoss(), batches, memory=sketch)["gradient_disparity"]
        >>> abs(found / full - 1) < 0.05
        True
    """

    size: int = 2**16
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer("size", self.size, at_least=2, remedy="Sketch() has 65,536 numbers.")
        require_integer("seed", self.seed, at_least=0, remedy="Any other seed gives another projection.")

    @property
    def expected_error(self) -> float:
        """The standard deviation of a distance, relative to it: sqrt(1 / (2 size))."""
        return math.sqrt(0.5 / self.size)

    @property
    def cosine_error(self) -> float:
        """The standard deviation of the cosine of two nearly orthogonal gradients: sqrt(1 / size)."""
        return math.sqrt(1.0 / self.size)

    def add(self, sketch: Tensor, part: Tensor, number: int) -> None:
        """Add the projection of `part`, the gradient of parameter `number`, to `sketch`."""
        signs, flat = _signs(self, sketch.device, sketch.dtype), part.reshape(-1)
        for start, (shift, offset, sign) in zip(
            range(0, len(flat), self.size), _places(self, number, len(flat)), strict=True
        ):
            piece = flat[start : start + self.size]
            piece = signs[offset : offset + len(piece)] * piece
            before = min(self.size - shift, len(piece))
            sketch[shift : shift + before].add_(piece[:before], alpha=sign)
            sketch[: len(piece) - before].add_(piece[before:], alpha=sign)


GradientMemory: TypeAlias = StorageName | Sketch


def resolve_memory(memory: GradientMemory) -> GradientMemory:
    """Check the argument `memory`, and replace `"sketch"` by the default sketch."""
    if isinstance(memory, Sketch):
        return memory
    if isinstance(memory, int):
        raise ArgumentError(
            f"Parameter `memory` should be one of {', '.join(map(repr, STORAGES))}, or a Sketch. Found `memory = "
            f"{memory!r}`. For a sketch of that many numbers: memory=heldin.Sketch({memory!r})."
        )
    require_choice("memory", memory, STORAGES)
    return Sketch() if memory == "sketch" else memory


class ReducedGradient:
    """The gradient of one batch, reduced part by part while the backward pass computes it.

    Args:
        memory: `"bf16"` or a `Sketch`.
        parameters: the parameters it is the gradient for.
        with_moments: sum the numbers and their squares too, for `std()`.
    """

    def __init__(
        self, memory: GradientMemory, parameters: Sequence[nn.Parameter], *, with_moments: bool = False
    ) -> None:
        self.memory = memory
        self.with_moments = with_moments
        self.parameters = parameters
        self._parts: list[Tensor | None] = [None] * len(parameters)
        self._sketches: dict[Group, Tensor] = {}
        self._moments: list[Moments] = []
        if isinstance(memory, Sketch):
            for group in dict.fromkeys(map(_group, parameters)):
                self._sketches[group] = torch.zeros(memory.size, device=group[0], dtype=group[1])

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Receive the gradient of the backward pass inside the block, in place of its caller."""
        handles = [
            parameter.register_hook(partial(self._receive, number))  # type: ignore[no-untyped-call]
            for number, parameter in enumerate(self.parameters)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def row(self) -> Row:
        """The parts of the parameters in bfloat16, or one sketch for each device."""
        return tuple(self._sketches.values()) if self._sketches else tuple(self._parts)

    def std(self) -> float:
        """The standard deviation (ddof 1) of all numbers of the gradient."""
        return std_of_moments(self._moments)

    def add(self, number: int, part: Tensor) -> None:
        """Add the gradient of parameter `number`, a dense tensor of real numbers."""
        if self.with_moments:
            self._moments.append(moments_of(part))
        if isinstance(self.memory, Sketch):
            self.memory.add(self._sketches[_group(self.parameters[number])], part, number)
        else:
            self._parts[number] = part.to(torch.bfloat16)

    def add_row(self, row: Row) -> None:
        """Add the gradients of all parameters."""
        for number, part in enumerate(row):
            if part is not None:
                self.add(number, part)

    def _receive(self, number: int, part: Tensor) -> Tensor | None:
        """A hook of autograd: what it returns takes the place of the gradient."""
        with torch.no_grad():
            self.add(number, as_real(part.detach()))
            return part.new_zeros(()).expand_as(part) if part.layout is torch.strided else None


def _group(parameter: Tensor) -> Group:
    """Where the numbers of a parameter are summed: its device, in at least single precision."""
    real = parameter.dtype.to_real() if parameter.is_complex() else parameter.dtype
    return parameter.device, torch.promote_types(real, torch.float32)


@lru_cache(maxsize=8)
def _signs(sketch: Sketch, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A row of random signs, from which each piece takes its own at some offset."""
    generator = torch.Generator().manual_seed(derive_seed(sketch.seed, "signs"))
    num = (NUM_OFFSETS + 1) * sketch.size
    return (torch.randint(2, (num,), generator=generator, device="cpu") * 2 - 1).to(device, dtype)


@lru_cache(maxsize=4096)
def _places(sketch: Sketch, number: int, num_values: int) -> tuple[tuple[int, int, int], ...]:
    """For each piece of parameter `number`: its shift in the sketch, its offset in the row of signs, and one sign."""
    generator = torch.Generator().manual_seed(derive_seed(sketch.seed, "places", number))
    num = -(-num_values // sketch.size)
    shifts, offsets, signs = (
        torch.randint(end, (num,), generator=generator, device="cpu").tolist()
        for end in (sketch.size, NUM_OFFSETS * sketch.size, 2)
    )
    return tuple(zip(shifts, offsets, (2 * sign - 1 for sign in signs), strict=True))


def num_sketches(parameters: Sequence[nn.Parameter]) -> int:
    """The number of sketches of one gradient: one for each device and precision."""
    return len(set(map(_group, parameters)))


def is_reduced(memory: GradientMemory, num_values: int) -> bool:
    """True if gradients of `num_values` numbers are not held in full."""
    return num_values > memory.size if isinstance(memory, Sketch) else memory == "bf16"
