"""What every signal is: it says what it needs, and makes one number of what was found."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from heldin.errors import ArgumentError, require_choice
from heldin.needs import BatchGradients, Need
from heldin.rules import NthRise, Rule, as_rule
from heldin.types import Direction

Memory: TypeAlias = dict[str, Any]
"""What a signal carries from one reading to the next: plain values and tensors, for `weights_only=True`."""


class Family(str, Enum):
    """What a signal is at bottom. Those of one family tell much the same: they are no independent witnesses."""

    NOISE = "noise of the gradient"
    NOISE_TO_SIGNAL = "noise against signal"
    COORDINATES = "noise against signal, by coordinate"
    ANGLES = "angles between gradients"
    CLASSES = "alignment within a class"
    FUNCTION = "what the network says"
    WEIGHTS = "gradient against weights"
    OWN = "one's own"


@dataclass(frozen=True)
class Signal(ABC):
    """What was found -> one number. Subclasses are frozen dataclasses; their fields are their options.

    Attributes:
        name: what it is called in results.
        direction: where it goes when the network begins to memorise.
        family: what it is at bottom, and which others say much the same.
        rule: the stopping rule its authors use; where they have none, the paper's 5th rise (or fall).
        cost: forward and backward passes of one reading, s being the number of batches.
        reference: where it comes from.
    """

    name: ClassVar[str]
    direction: ClassVar[Direction]
    family: ClassVar[Family] = Family.OWN
    rule: ClassVar[Rule] = NthRise(5)
    cost: ClassVar[str] = "s backward"
    reference: ClassVar[str] = ""

    @property
    @abstractmethod
    def needs(self) -> Need:
        """What it asks of a probe."""

    @abstractmethod
    def read(self, found: Any) -> float:
        """The number, from what was asked for."""

    def caveat(self, found: Any) -> str | None:
        """What should be said of that number, once: that it is not what the formula says, and why. None: nothing."""
        return None

    @property
    def label(self) -> str:
        """The name with the options that are not the default ones."""
        options = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}[{','.join(options)}]" if options else self.name


@dataclass(frozen=True)
class RememberingSignal(Signal):
    """A signal that compares what was found with what was found before. It stays pure: its memory is handed in."""

    @abstractmethod
    def recall(self, memory: Memory, found: Any) -> tuple[Memory, float | None]:
        """The memory after this reading, and the number; None while there is nothing yet to compare with.

        `memory` is what the reading before returned, {} at the first one.
        """

    def read(self, found: Any) -> float:
        """The number of a first reading: NaN where there is nothing yet to compare with."""
        _, value = self.recall({}, found)
        return math.nan if value is None else value


def signal(
    name: str,
    *,
    direction: Direction | str = Direction.RISES,
    needs: Need | None = None,
    rule: Rule | str | None = None,
) -> Callable[[Callable[[Any], float]], Signal]:
    """Make a signal of a function: it is given what `needs` names, and returns one number.

    Args:
        name: what the signal is called in results.
        direction: where it goes when the network begins to memorise, `"rises"` or `"falls"`.
        needs: what the function is given; by default the Gram matrix of the batch gradients, re-scaled as the paper
            does. `heldin.needs` lists what there is.
        rule: when to stop by it; by default at the 5th rise (or fall).

    Example:
        >>> import torch
        >>> import heldin
        >>> from heldin.needs import BatchGradients
        >>> @heldin.signal("largest_distance", needs=BatchGradients("none"))
        ... def largest_distance(gram):
        ...     return max(gram.distance(i, j) for i, j in gram.pairs())
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 2.0, 4.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> found = heldin.measure(model, torch.nn.L1Loss(), batches, signals=[largest_distance])
        >>> round(found["largest_distance"], 4)
        3.0
    """
    if not isinstance(name, str):
        raise ArgumentError(f'A signal should have a name: @heldin.signal("its_name"). Found {name!r}.')
    require_choice("direction", direction, [known.value for known in Direction])
    need = BatchGradients() if needs is None else needs
    if not isinstance(need, Need):
        raise ArgumentError(f"Parameter `needs` should be one of those in heldin.needs. Found {needs!r}.")

    def made(function: Callable[[Any], float]) -> Signal:
        def read(self: Signal, found: Any) -> float:
            value = function(found)
            try:
                return float(value)
            except (TypeError, ValueError, RuntimeError) as error:
                raise ArgumentError(f"The signal {name!r} should return one number. Found {value!r}.") from error

        body = {
            "name": name,
            "direction": Direction(direction),
            "rule": Signal.rule if rule is None else as_rule(rule),
            "needs": property(lambda self: need),
            "read": read,
            "__doc__": function.__doc__,
        }
        return type(function.__name__, (Signal,), body)()  # type: ignore[no-any-return]

    return made
