"""The paper's numbers next to ours with a verdict on each, and questions that several claims answer together."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from heldin.errors import ArgumentError
from heldin.lab.select import Protocol
from heldin.lab.tables import Table, format_cell
from paper.harness.claims import NO_PROTOCOL, Claim, Verdict, is_clear, judge, number_of
from paper.harness.items import Item, Result

PER_RUN, MEAN_CURVE = PROTOCOLS = (Protocol.PER_RUN.value, Protocol.MEAN_CURVE.value)
CLAIM_COLUMNS = ("claim", "paper", "ours", "n", "compared with", "verdict")
QUESTION_COLUMNS = ("question", "paper", "per run", "mean curve", "items")
CLAIMED = "the paper claims"
KINDS = {"statements": True, "printed numbers": False}
"""The columns of the summary, and whether they count statements."""


@dataclass(frozen=True, eq=False)
class JudgedItem:
    """An item, the claims on it, its result and the verdicts.

    Attributes:
        item: The table or figure.
        claims: Its numbers and statements.
        result: What was built from its records.
        describe: The key of a number -> a description.
    """

    item: Item
    claims: tuple[Claim, ...]
    result: Result
    describe: Callable[[str], str] = str

    @cached_property
    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """The verdicts on each claim, by its key: one per protocol, or a single one."""
        claims = {claim.key: claim for claim in self.claims}
        return {
            claim.key: {name: judge(claim, self.result.numbers, claims, name) for name in self._protocols(claim)}
            for claim in self.claims
        }

    @property
    def headline(self) -> str:
        """What the item is about, marked as the paper's claim if it is one."""
        return f"The paper claims: {self.item.claim}" if self.claims else self.item.claim

    def counts(self, *, statements: bool) -> Counter[Verdict]:
        """Count the verdicts on statements or on numbers. A claim with both protocols counts twice."""
        keys = [claim.key for claim in self.claims if claim.statement is statements]
        return Counter(verdict for key in keys for verdict in self.verdicts[key].values())

    def table(self, *, statements: bool | None = None) -> Table:
        """Return the paper's numbers next to ours: statements, other numbers, or (None) both."""
        rows = [self._row(claim) for claim in self.claims if statements in (None, claim.statement)]
        return Table(CLAIM_COLUMNS, tuple(rows), f"{self.item.heading}. {self.headline}")

    def _protocols(self, claim: Claim) -> tuple[str, ...]:
        found = {*self.result.numbers.get(claim.key, {}), *self.result.remarks.get(claim.key, {})}
        return PROTOCOLS if found - {NO_PROTOCOL} else (NO_PROTOCOL,)

    def _row(self, claim: Claim) -> dict[str, str]:
        verdicts = self.verdicts[claim.key]
        ours = {name: number_of(self.result.numbers, claim.key, name) for name in verdicts}
        remarks = self.result.remarks.get(claim.key, {})
        texts = [
            _with_protocol(name, format_cell(number), remarks.get(name))
            for name, number in ours.items()
            if number or name in remarks
        ]
        return {
            "claim": claim.text or self.describe(claim.key),
            "paper": _printed(claim),
            "ours": "; ".join(texts) or "-",
            "n": "; ".join(dict.fromkeys(str(number.num) for number in ours.values() if number)) or "-",
            "compared with": self._compared_with(claim),
            "verdict": "; ".join(_with_protocol(name, verdict.value) for name, verdict in verdicts.items()),
        }

    def _compared_with(self, claim: Claim) -> str:
        """Describe what our number is compared with, without the setting if it is that of the claim."""
        found = [] if claim.reference is None else [f"{claim.reference:g}"]
        if claim.against is not None:
            text = next((each.text for each in self.claims if each.key == claim.against), "")
            setting = self.describe(claim.key).partition(": ")[0] + ": "
            found.append((text or self.describe(claim.against)).removeprefix(setting))
        return ", ".join(found) or "-"


def summary(judged: Sequence[JudgedItem]) -> Table:
    """Return one row per item: the number of each verdict, on statements and on printed numbers."""
    rows = [
        {
            "item": each.item.heading,
            CLAIMED: each.item.claim,
            **{name: _counts_text(each.counts(statements=kind)) for name, kind in KINDS.items()},
        }
        for each in judged
    ]
    if len(rows) > 1:
        total = {name: sum((e.counts(statements=kind) for e in judged), Counter()) for name, kind in KINDS.items()}
        rows.append({"item": "all", CLAIMED: "", **{name: _counts_text(counts) for name, counts in total.items()}})
    return Table(("item", CLAIMED, *KINDS), tuple(rows))


def statements(judged: Sequence[JudgedItem]) -> Table:
    """Return the statements of all items."""
    rows = [{"item": each.item.label, **row} for each in judged for row in each.table(statements=True).rows]
    return Table(("item", *CLAIM_COLUMNS), tuple(rows))


def _counts_text(counts: Counter[Verdict]) -> str:
    return " / ".join(str(counts[verdict]) for verdict in Verdict) if counts else "-"


def _printed(claim: Claim) -> str:
    sign = "above 0" if claim.value > 0 else "below 0"
    if claim.statement:
        return sign if abs(claim.value) == 1.0 else f"{sign} ({claim.value:g})"
    tolerance = f" (tolerance {claim.tolerance:g})" if claim.tolerance is not None else ""
    return f"{claim.value:g}" + (f" ± {claim.std:g}" if claim.std is not None else "") + tolerance


def _with_protocol(protocol: str, text: str, remark: str | None = None) -> str:
    parts = [part for part in (protocol.replace("_", " "), remark) if part]
    return f"{text} ({', '.join(parts)})" if parts else text


@dataclass(frozen=True)
class Question:
    """A question that several claims answer together.

    Args:
        text: The question.
        claims: Patterns of items and keys of claims, such as `tab:kfold?/*.gd-cv.loss`.
        yes: The sign of a number that means yes; 0 if a claim answers yes when it is reproduced.
    """

    text: str
    claims: tuple[str, ...]
    yes: int = 0

    def select(self, judged: Sequence[JudgedItem]) -> list[tuple[JudgedItem, Claim]]:
        """Return the claims that answer it. If a sign means yes, they have to be statements."""
        found = [
            (each, claim)
            for each in judged
            for claim in each.claims
            if any(fnmatchcase(f"{claim.item}/{claim.key}", pattern) for pattern in self.claims)
        ]
        other = next((claim for _, claim in found if self.yes and not claim.statement), None)
        if other is not None:
            raise ArgumentError(
                f"{self.text!r} is answered by a sign, so its claims should be statements. Found "
                f"{other.item}/{other.key}, a number. Narrow the patterns of the question."
            )
        return found


def read_questions(path: Path) -> list[Question]:
    """Read the questions of a TOML file; none if the file does not exist."""
    if not path.is_file():
        return []
    known = {field.name for field in fields(Question)}
    found = []
    for content in tomllib.loads(path.read_text(encoding="utf-8")).get("question", []):
        unknown = sorted({*content} - known)
        if unknown:
            raise ArgumentError(f"The fields of a question are {', '.join(sorted(known))}. Found {unknown}.")
        found.append(Question(content["text"], tuple(content["claims"]), content.get("yes", 0)))
    return found


def answers(questions: Sequence[Question], judged: Sequence[JudgedItem]) -> Table:
    """Return one row per question: how many of its claims say yes, in the paper and here, of those that were run."""
    rows = []
    for question in questions:
        claims = question.select(judged)
        if claims:
            yes = sum(question.yes == 0 or claim.value * question.yes > 0 for _, claim in claims)
            row = {
                "question": question.text,
                "paper": f"{yes} of {len(claims)}",
                "items": ", ".join(dict.fromkeys(each.item.label for each, _ in claims)),
            }
            rows.append(row | {name.replace("_", " "): _our_answers(question, claims, name) for name in PROTOCOLS})
    return Table(QUESTION_COLUMNS, tuple(rows))


def _our_answers(question: Question, claims: Sequence[tuple[JudgedItem, Claim]], protocol: str) -> str:
    """Count our answers: yes, clearly yes and clearly no; `-` if no protocol is involved."""
    if protocol == MEAN_CURVE and all(set(each.verdicts[claim.key]) == {NO_PROTOCOL} for each, claim in claims):
        return "-"
    found = [one for each, claim in claims if (one := _our_answer(question, each, claim, protocol)) is not None]
    if not found:
        return "not run"
    counts = Counter(found)
    text = f"{sum(yes for yes, _ in found)} of {len(found)}"
    if not question.yes or all(clear is None for _, clear in found):
        return text
    refuted = f", {counts[False, True]} clearly not" if counts[False, True] else ""
    return f"{text} ({counts[True, True]} clearly{refuted})"


def _our_answer(question: Question, judged: JudgedItem, claim: Claim, protocol: str) -> tuple[bool, bool | None] | None:
    """Return whether our number says yes, and whether clearly (None without a spread); None if it was not run."""
    ours = number_of(judged.result.numbers, claim.key, protocol)
    if ours is None:
        return None
    if question.yes:
        return ours.mean * question.yes > 0, None if ours.std is None else is_clear(ours)
    verdicts = judged.verdicts[claim.key]
    return verdicts.get(protocol, verdicts.get(NO_PROTOCOL)) is Verdict.REPRODUCED, None
