"""The paper's numbers beside ours, with the verdict on each: for the terminal, for markdown and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from heldin.lab.curves import Estimate
from heldin.lab.reproducing.claims import ANY, Claim, Verdict, judge, number_of
from heldin.lab.reproducing.items import Built, Item
from heldin.lab.selection import Protocol
from heldin.lab.tables import Table

PER_RUN, MEAN_CURVE = Protocol.PER_RUN.value, Protocol.MEAN_CURVE.value
COLUMNS = ("claim", "paper", "ours", "runs", "verdict")


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

    def counts(self) -> Counter[Verdict]:
        """How often each verdict was given; two for a claim with both protocols."""
        return Counter(verdict for found in self.verdicts.values() for verdict in found.values())

    def table(self, *, statements: bool | None = None) -> Table:
        """The paper's numbers beside ours: statements, the others, or (None) all of them."""
        rows = [self._row(claim) for claim in self.claims if statements in (None, claim.statement)]
        title = f"{', '.join((self.item.label, *self.item.also))}: {self.item.claim}"
        return Table(COLUMNS, tuple(rows), title)

    def _protocols(self, claim: Claim) -> tuple[str, ...]:
        found = self.built.numbers.get(claim.key, {})
        return (ANY,) if not found or set(found) == {ANY} else (PER_RUN, MEAN_CURVE)

    def _row(self, claim: Claim) -> dict[str, str]:
        verdicts = self.verdicts[claim.key]
        ours = {way: number_of(self.built.numbers, claim.key, way) for way in verdicts}
        known = {way: number for way, number in ours.items() if number is not None}
        return {
            "claim": claim.text or self.said(claim.key),
            "paper": _printed(claim),
            "ours": "; ".join(_under(way, _shown(number)) for way, number in known.items()) or "-",
            "runs": "; ".join(dict.fromkeys(str(number.num) for number in known.values())) or "-",
            "verdict": "; ".join(_under(way, verdict.value) for way, verdict in verdicts.items()),
        }


def summary(found: Sequence[Judged]) -> Table:
    """A row an item: how often each verdict was given."""
    rows: list[dict[str, str | int]] = []
    for each in found:
        counts = each.counts()
        shared: dict[str, str | int] = {"item": ", ".join((each.item.label, *each.item.also)), "claim": each.item.claim}
        rows.append(shared | {verdict.value: counts[verdict] if each.claims else "-" for verdict in Verdict})
    if len(rows) > 1:
        whole: dict[str, str | int] = {"item": "all", "claim": ""}
        counted = sum((each.counts() for each in found), Counter[Verdict]())
        rows.append(whole | {verdict.value: counted[verdict] for verdict in Verdict})
    return Table(("item", "claim", *(verdict.value for verdict in Verdict)), tuple(rows))


def statements(found: Sequence[Judged]) -> Table:
    """What is claimed in words, over all items."""
    rows = [{"item": each.item.label, **row} for each in found for row in each.table(statements=True).rows]
    return Table(("item", *COLUMNS), tuple(rows))


def _printed(claim: Claim) -> str:
    if claim.statement and abs(claim.value) == 1.0:
        return "above 0" if claim.value > 0 else "below 0"
    return f"{claim.value:g}" + (f" ± {claim.std:g}" if claim.std is not None else "")


def _shown(number: Estimate) -> str:
    return f"{number.mean:.4g}" + (f" ± {number.std:.2g}" if number.std is not None else "")


def _under(protocol: str, text: str) -> str:
    return text if protocol == ANY else f"{text} ({protocol.replace('_', ' ')})"
