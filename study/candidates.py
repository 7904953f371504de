"""The stopping methods that the study compares: one list, written before any record of the study was read.

The first is the paper's rule. The hypothesis of the study is `RiseAbove(0.1, noise=3, ema=0.5)` on disparity with the
detached or pooled standard deviation, from the reading on at which the training loss has fallen by 10 %. Around it each
constant is varied alone. Signals that need no gradients, timers and levels of the training loss are candidates like all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldin.rules import ConsecutiveRises, FirstMinimum, Level, NthRise, RiseAbove, Rule, first_after_fall, replay
from study.curves import CURVES, Point, training_losses

MAX_CANDIDATES = 60
FALL = 0.1  # of the training loss, after which most rules begin


@dataclass(frozen=True)
class Candidate:
    """A rule on a curve.

    Attributes:
        curve: The name of the curve.
        rule: When to stop.
        start: How far the training loss has to fall before the rule begins, as a fraction; None: it begins at once.
        early: Whether the readings between the batches of the first epochs are used.
        roll_back: Whether the weights of the epoch `Decision.before` are restored.
    """

    curve: str
    rule: Rule
    start: float | None = None
    early: bool = False
    roll_back: bool = False

    @property
    def name(self) -> str:
        """A short description."""
        start = "" if self.start is None else f", after a fall of the loss by {self.start:.0%}"
        early = ", early readings" if self.early else ""
        return f"{self.curve}: {_rule_name(self.rule)}{start}{early}{', rolled back' * self.roll_back}"

    def stop(self, points: Sequence[Point]) -> int | None:
        """Return the number of the point whose weights are used; None if the rule never stops."""
        begin: int | None = 0
        if self.start is not None:
            begin = first_after_fall(training_losses(points), self.start)
        if begin is None:
            return None
        values = [point.value(self.curve) for point in points[begin:]]
        decision = replay(self.rule, values, direction=CURVES[self.curve].direction)
        chosen = decision.before if self.roll_back and decision.before is not None else decision.epoch
        return None if decision.epoch is None or chosen is None else begin + chosen

    @property
    def cost(self) -> float:
        """The cost of a reading, in batch gradients."""
        return CURVES[self.curve].cost


def _rule_name(rule: Rule) -> str:
    """The rule with all its constants: those of `RiseAbove` are what the study varies."""
    if isinstance(rule, RiseAbove):
        return f"RiseAbove({rule.fraction:g}, noise={rule.noise:g}, ema={rule.ema:g})"
    return rule.describe(keywords=False)


@dataclass(frozen=True)
class Timer:
    """Stops after a number of epochs, or after a fraction of the horizon; without either, never."""

    epochs: int | None = None
    of_horizon: float | None = None
    early: bool = False
    cost: float = 0.0

    @property
    def name(self) -> str:
        """A short description."""
        if self.epochs is not None:
            return f"always after {self.epochs} epochs"
        return "no early stopping" if self.of_horizon is None else f"after {self.of_horizon:.0%} of the horizon"

    def stop(self, points: Sequence[Point]) -> int | None:
        """Return the number of the point at which it stops."""
        if self.epochs is not None:
            return min(self.epochs, len(points)) - 1
        return None if self.of_horizon is None else max(1, round(self.of_horizon * len(points))) - 1


@dataclass(frozen=True)
class Joined:
    """Stops with the last of several candidates, or with the first."""

    parts: tuple[Candidate, ...]
    last: bool = True
    early: bool = False

    @property
    def name(self) -> str:
        """A short description."""
        return f"the {'last' if self.last else 'first'} of ({') and ('.join(part.name for part in self.parts)})"

    def stop(self, points: Sequence[Point]) -> int | None:
        """Return the number of the point at which it stops."""
        stops = [part.stop(points) for part in self.parts]
        known = [stop for stop in stops if stop is not None]
        if not known or (self.last and len(known) < len(stops)):
            return None
        return max(known) if self.last else min(known)

    @property
    def cost(self) -> float:
        """The cost of a reading: curves from the same batches share a forward pass, but not a backward pass."""
        return sum(part.cost for part in self.parts)


Method = Candidate | Timer | Joined

PAPER = Candidate("std, new batches", NthRise(5))
NEVER = Timer()

_CENTER = RiseAbove(0.1, 3.0, 0.5)


def _around(curve: str, *rules: RiseAbove) -> list[Candidate]:
    return [Candidate(curve, rule, FALL) for rule in (_CENTER, *rules)]


CANDIDATES: tuple[Method, ...] = (
    # The paper's rules
    PAPER,
    Candidate("std", NthRise(5)),
    Candidate("std_detached", NthRise(5)),
    Candidate("std, new batches", ConsecutiveRises(5)),
    Candidate("std, new batches", NthRise(5), roll_back=True),
    Candidate("std", NthRise(5), FALL, early=True),
    # The hypothesis, and each of its constants alone
    *_around(
        "std_detached",
        RiseAbove(0.02, 3.0, 0.5),
        RiseAbove(0.05, 3.0, 0.5),
        RiseAbove(0.2, 3.0, 0.5),
        RiseAbove(0.1, 0.0, 0.5),
        RiseAbove(0.1, 2.0, 0.5),
        RiseAbove(0.1, 5.0, 0.5),
        RiseAbove(0.1, 3.0, 0.0),
        RiseAbove(0.1, 3.0, 0.8),
    ),
    Candidate("std_detached", _CENTER),
    Candidate("std_detached", _CENTER, 0.3),
    Candidate("std_detached", _CENTER, FALL, early=True),
    Candidate("std_detached", _CENTER, FALL, roll_back=True),
    # The same on other re-scalings
    *_around("pooled_std", RiseAbove(0.2, 3.0, 0.5), RiseAbove(0.1, 2.0, 0.5), RiseAbove(0.1, 0.0, 0.5)),
    Candidate("pooled_std", _CENTER),
    Candidate("pooled_std", _CENTER, FALL, early=True),
    *_around("std", RiseAbove(0.2, 3.0, 0.5), RiseAbove(0.1, 2.0, 0.5), RiseAbove(0.1, 0.0, 0.5)),
    Candidate("std", _CENTER),
    Candidate("std", _CENTER, FALL, early=True),
    *_around("std, new batches"),
    *_around("std_detached, new batches"),
    *_around("plain"),
    Joined((Candidate("std", _CENTER, FALL), Candidate("std_detached", _CENTER, FALL))),
    Joined((Candidate("std", _CENTER, FALL), Candidate("std_detached", _CENTER, FALL)), last=False),
    # Other signals of gradients
    *_around("fisher_ratio"),
    Candidate("fisher_ratio", Level(1.5), FALL),
    Candidate("noise_scale", NthRise(5)),
    *_around("noise_scale"),
    Candidate("cosine", NthRise(5)),
    Candidate("gwa", NthRise(5)),
    # Signals without gradients
    Candidate("label_wave", FirstMinimum(3, 5), roll_back=True),
    Candidate("label_wave", FirstMinimum(3, 5), FALL, roll_back=True),
    *_around("changed predictions"),
    *_around("entropy / loss"),
    Candidate("entropy / loss", Level(1.5), FALL),
    Candidate("entropy / first", Level(0.5)),
    Candidate("entropy / first", Level(0.25)),
    Candidate("entropy / first", Level(0.1)),
    Candidate("loss / first", Level(0.5)),
    Candidate("loss / first", Level(0.25)),
    Candidate("loss / first", Level(0.1)),
    # Timers
    Timer(epochs=6),
    Timer(epochs=12),
    Timer(epochs=24),
    Timer(of_horizon=0.25),
)
"""The candidates, at most 60."""
