"""Signals: a signal has a need, and computes one number from its payload."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from heldin.errors import ArgumentError, require_choice
from heldin.needs import BatchGradients, Need
from heldin.rules import NthRise, Rule, as_rule
from heldin.types import Direction

if TYPE_CHECKING:
    from typing_extensions import Self

Payload = TypeVar("Payload")

Memory: TypeAlias = dict[str, Any]
"""What a signal keeps from one reading to the next: plain values and tensors, for `weights_only=True`."""


class Family(str, Enum):
    """What a signal measures. Signals of one family are not independent evidence."""

    NOISE = "gradient noise"
    NOISE_TO_SIGNAL = "noise to signal"
    COORDINATES = "noise to signal, per coordinate"
    ANGLES = "angles between gradients"
    CLASSES = "alignment within a class"
    FUNCTION = "change of predictions"
    WEIGHTS = "gradient against weights"
    USER = "user-defined"


@dataclass(frozen=True)
class Signal(ABC, Generic[Payload]):
    """Computes one number from the payload of its need. Subclasses are frozen dataclasses; fields are options.

    Attributes:
        name: its name in results.
        direction: whether it rises or falls when the network begins to memorise.
        family: what it measures.
        rule: the default rule: that of its authors, or the paper's 5th rise (or fall) if they give none.
        reference: the publication.
    """

    name: ClassVar[str]
    direction: ClassVar[Direction]
    family: ClassVar[Family] = Family.USER
    rule: ClassVar[Rule] = NthRise(5)
    reference: ClassVar[str] = ""

    def __new__(cls, *args: object, **options: object) -> Self:
        """Refuse options of a class that has no fields: they would be missing in its label, and in comparisons."""
        if (args or options) and not fields(cls):
            raise ArgumentError(
                f"{cls.__name__} has no options, but arguments were given. The options of a signal are the fields of a "
                "dataclass. Write @dataclass(frozen=True) above the class, and `option: float = 0.5` in it."
            )
        return super().__new__(cls)

    @property
    @abstractmethod
    def needs(self) -> Need[Payload]:
        """What is computed for it."""

    @abstractmethod
    def read(self, payload: Payload) -> float:
        """Return the number."""

    @property
    def label(self) -> str:
        """The name, with the options that differ from the defaults."""
        options = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}[{','.join(options)}]" if options else self.name


@dataclass(frozen=True)
class StatefulSignal(Signal[Payload]):
    """A signal that compares the payload with earlier ones. It stays pure: its memory is passed in and returned."""

    @abstractmethod
    def step(self, memory: Memory, payload: Payload) -> tuple[Memory, float | None]:
        """Return the memory after this reading, and the number; None if there is nothing to compare with yet.

        `memory` is what the previous reading returned, {} at the first one.
        """

    def predicts_one_class(self, memory: Memory) -> bool | None:
        """Whether the network predicts the same class for all samples; None if the signal does not know."""
        return None

    def read(self, payload: Payload) -> float:
        _, value = self.step({}, payload)
        return math.nan if value is None else value


def signal(
    name: str,
    *,
    direction: Direction | str = Direction.RISES,
    needs: Need[Any] | None = None,
    rule: Rule | str | None = None,
) -> Callable[[Callable[[Any], float]], Signal[Any]]:
    """Turn a function into a signal: it receives the payload of `needs` and returns one number.

    Args:
        name: the name of the signal in results.
        direction: whether it rises or falls when the network begins to memorise: `"rises"` or `"falls"`.
        needs: what the function receives; by default the Gram matrix of the batch gradients, re-scaled as in the
            paper. `heldin.needs` lists all needs.
        rule: when to stop; by default at the 5th rise (or fall).

    Examples:
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
        raise ArgumentError(
            f"Parameter `needs` should be a Need object of heldin.needs or your own, such as BatchGradients(). "
            f"Found {needs!r}."
        )

    def decorate(function: Callable[[Any], float]) -> Signal[Any]:
        body = {
            "name": name,
            "direction": Direction(direction),
            "rule": Signal.rule if rule is None else as_rule(rule),
            "needs": property(lambda self: need),
            "read": lambda self, payload: function(payload),
            "__doc__": function.__doc__,
        }
        return type(function.__name__, (Signal,), body)()  # type: ignore[no-any-return]

    return decorate
