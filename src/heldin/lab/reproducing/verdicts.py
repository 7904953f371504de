"""The paper's numbers beside ours, with the verdict on each: for the terminal, for markdown and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from heldin.lab.reproducing.claims import ANY, Claim, Verdict, judge, number_of
from heldin.lab.reproducing.items import Built, Item
from heldin.lab.select import Protocol
from heldin.lab.tables import Table, format_cell

PER_RUN, MEAN_CURVE = Protocol.PER_RUN.value, Protocol.MEAN_CURVE.value
COLUMNS = ("claim", "paper", "ours", "n", "compared with", "verdict")
STATEMENTS, NUMBERS = "in words", "printed numbers"
"""The columns of the summary."""


@dataclass(frozen=True, eq=False)
class Judged:
    """An item, what is claimed of it, what came out, and the verdicts.

    Attributes:
        item: the table or figure.
        claims: its numbers and statements.
        built: what its records gave.
        said: the key of a number in words.
    """

    item: Item
    claims: tuple[Claim, ...]
    built: Built
    said: Callable[[str], str] = str

    @cached_property
    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """On each claim, by its key: under both protocols, or the one there is."""
        known = {claim.key: claim for claim in self.claims}
        return {
            claim.key: {way: judge(claim, self.built.numbers, known, way) for way in self._protocols(claim)}
            for claim in self.claims
        }

    def counts(self, *, statements: bool) -> Counter[Verdict]:
        """How often each verdict was given, on statements or on numbers; two for a claim with both protocols."""
        keys = [claim.key for claim in self.claims if claim.statement is statements]
        return Counter(verdict for key in keys for verdict in self.verdicts[key].values())

    def table(self, *, statements: bool | None = None) -> Table:
        """The paper's numbers beside ours: statements, the others, or (None) all of them."""
        rows = [self._row(claim) for claim in self.claims if statements in (None, claim.statement)]
        title = f"{', '.join((self.item.label, *self.item.also))}: {self.item.claim}"
        return Table(COLUMNS, tuple(rows), title)

    def _protocols(self, claim: Claim) -> tuple[str, ...]:
        found = {*self.built.numbers.get(claim.key, {}), *self.built.remarks.get(claim.key, {})}
        return (PER_RUN, MEAN_CURVE) if found - {ANY} else (ANY,)

    def _row(self, claim: Claim) -> dict[str, str]:
        verdicts = self.verdicts[claim.key]
        ours = {way: number_of(self.built.numbers, claim.key, way) for way in verdicts}
        remarks = self.built.remarks.get(claim.key, {})
        told = [
            _under(way, format_cell(number), remarks.get(way))
            for way, number in ours.items()
            if number or way in remarks
        ]
        return {
            "claim": claim.text or self.said(claim.key),
            "paper": _printed(claim),
            "ours": "; ".join(told) or "-",
            "n": "; ".join(dict.fromkeys(str(number.num) for number in ours.values() if number)) or "-",
            "compared with": self._compared_with(claim),
            "verdict": "; ".join(_under(way, verdict.value) for way, verdict in verdicts.items()),
        }

    def _compared_with(self, claim: Claim) -> str:
        """What ours has to lie on the same side of, in words; without the setting where that is the claim's own."""
        found = [] if claim.reference is None else [f"{claim.reference:g}"]
        if claim.against is not None:
            other = next((each.text for each in self.claims if each.key == claim.against), "") or self.said(
                claim.against
            )
            setting = self.said(claim.key).partition(": ")[0] + ": "
            found.append(other.removeprefix(setting))
        return ", ".join(found) or "-"


def summary(found: Sequence[Judged]) -> Table:
    """A row an item: how often each verdict was given, on what is claimed in words and on printed numbers."""
    kinds = {STATEMENTS: True, NUMBERS: False}
    rows = [
        {
            "item": ", ".join((each.item.label, *each.item.also)),
            "claim": each.item.claim,
            **{name: _tally(each.counts(statements=kind)) for name, kind in kinds.items()},
        }
        for each in found
    ]
    if len(rows) > 1:
        whole = {name: sum((e.counts(statements=kind) for e in found), Counter()) for name, kind in kinds.items()}
        rows.append({"item": "all", "claim": "", **{name: _tally(counts) for name, counts in whole.items()}})
    return Table(("item", "claim", *kinds), tuple(rows))


def _tally(counts: Counter[Verdict]) -> str:
    return " / ".join(str(counts[verdict]) for verdict in Verdict) if counts else "-"


def statements(found: Sequence[Judged]) -> Table:
    """What is claimed in words, over all items."""
    rows = [{"item": each.item.label, **row} for each in found for row in each.table(statements=True).rows]
    return Table(("item", *COLUMNS), tuple(rows))


def _printed(claim: Claim) -> str:
    sign = "above 0" if claim.value > 0 else "below 0"
    if claim.statement:
        return sign if abs(claim.value) == 1.0 else f"{sign} ({claim.value:g})"
    near = f" (to {claim.tolerance:g})" if claim.tolerance is not None else ""
    return f"{claim.value:g}" + (f" ± {claim.std:g}" if claim.std is not None else "") + near


def _under(protocol: str, text: str, remark: str | None = None) -> str:
    told = [part for part in (protocol.replace("_", " "), remark) if part]
    return f"{text} ({', '.join(told)})" if told else text
