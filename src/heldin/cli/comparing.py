"""What the verbs that compare share: the settings found among the records, and the ways of stopping asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from heldin.cli.records import timings
from heldin.errors import ArgumentError
from heldin.lab.curves import require_recorded
from heldin.lab.grouping import Group, groups, setting_of
from heldin.lab.spec import parse_signal as parsed
from heldin.lab.store import RunRecord, Store
from heldin.lab.ways import Kind, Way, ways_for
from heldin.rules import ConsecutiveRises, NthRise, Rule


def compared(records: Sequence[RunRecord], signals: list[str] | None) -> list[Group]:
    """The settings with runs that are done; refused where there are none, or where a signal was never recorded."""
    found = [group for group in groups(records) if group.full or group.folded]
    if not found:
        raise ArgumentError(
            f"None of these {len(records)} runs is done, so there is nothing to compare. "
            "Give the command of before once more (`heldin run ...`): it goes on where it was cut off."
        )
    for signal in signals or ():
        require_recorded([record for group in found for record in group.full], signal)
    return found


def ways_of(group: Group, signals: list[str] | None, *, rule: str = "nth_rise", patience: int = 5) -> list[Way]:
    """The ways of stopping of a group that use one of these signals, or none, and the rules asked for.

    Args:
        group: the runs of one setting.
        signals: labels; None for all that were recorded.
        rule: `"nth_rise"`, `"consecutive_rises"`, `"own"` for that of a signal's authors, or `"all"`.
        patience: of the first two.
    """
    rules: dict[str, Rule] = {"nth_rise": NthRise(patience), "consecutive_rises": ConsecutiveRises(patience)}

    def wanted(way: Way) -> bool:
        if signals is not None and way.kind is Kind.SIGNAL and way.signal not in signals:
            return False
        if way.rule is None or rule == "all":
            return True
        own = parsed(way.signal)[0].rule if way.signal is not None else NthRise(patience)
        return way.rule == rules.get(rule, own)

    return [way for way in ways_for(group, patience=patience) if wanted(way)]


def correlated_signals(found: Sequence[Group], signals: list[str] | None) -> list[str]:
    """The signals that all of these settings recorded."""
    shared = [label for label in found[0].signals if all(label in group.signals for group in found)]
    if signals is None and not shared:
        raise ArgumentError(f"These {len(found)} settings share no signal. Choose some of them, with --dataset say.")
    return signals or shared


def timings_of(group: Group, records: Sequence[RunRecord], store: Store) -> Iterator[dict[str, Any]]:
    """The timings of the runs of a group."""
    for record in records:
        if setting_of(record.spec) == group.setting:
            yield from timings(store, record)
