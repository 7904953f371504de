"""A rule over values that are already there."""

from __future__ import annotations

from collections.abc import Iterable

from heldin.rules.rule import MaybeValue, Rule, placed, require_direction, says_something
from heldin.types import Decision, Direction


def replay(rule: Rule, values: Iterable[MaybeValue], *, direction: Direction | str | None = None) -> Decision:
    """What `rule` would have decided on `values`: the decision at which it stops, or the last one.

    Args:
        rule: any rule.
        values: one number a measurement, from epoch 0 on (or one mapping of numbers, for rules on several signals).
            None, for a signal that has no value yet, is waited out.
        direction: which way is bad, `"rises"` or `"falls"`, for a rule that was not told; rises by default.

    Example:
        >>> from heldin import NthRise, replay
        >>> replay(NthRise(patience=2), [3, 1, 2, 1, 2, 3]).epoch
        4
    """
    require_direction(direction)
    if direction is not None:
        rule = rule.facing(Direction(direction))
    state, decision = rule.start(), Decision(stop=False)
    judged: list[int] = []
    for epoch, value in enumerate(values):
        if not says_something(value):
            continue
        state, decision = rule.step(state, value)
        judged.append(epoch)
        if decision.stop:
            break
    return placed(decision, judged)
