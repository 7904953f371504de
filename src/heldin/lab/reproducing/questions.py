"""Questions that several claims bear on: in how many of them the paper says yes, and in how many we do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from heldin.errors import ArgumentError
from heldin.lab.reproducing.claims import ANY, Claim, Verdict, is_clear, number_of
from heldin.lab.reproducing.verdicts import MEAN_CURVE, PER_RUN, Judged
from heldin.lab.tables import Table

COLUMNS = ("question", "paper", "per run", "mean curve", "items")


@dataclass(frozen=True)
class Question:
    """A question, and the claims on it.

    Args:
        text: with a question mark.
        claims: patterns such as `tab:kfold?/*.gd-cv.loss`, of the items and keys of the claims.
        yes: the sign that says yes; 0 where it is whether the claim holds.
    """

    text: str
    claims: tuple[str, ...]
    yes: int = 0

    def among(self, found: Sequence[Judged]) -> list[tuple[Judged, Claim]]:
        """The claims on it; where a sign says yes, statements."""
        asked = [
            (each, claim)
            for each in found
            for claim in each.claims
            if any(fnmatchcase(f"{claim.item}/{claim.key}", pattern) for pattern in self.claims)
        ]
        other = next((claim for _, claim in asked if self.yes and not claim.statement), None)
        if other is not None:
            raise ArgumentError(
                f"{self.text!r} is answered by a sign, so by statements. Found {other.item}/{other.key}, a number. "
                "Narrow the patterns of the question."
            )
        return asked


def questions_from_toml(path: Path) -> list[Question]:
    """The questions of a TOML file; none where there is no such file."""
    if not path.is_file():
        return []
    known = {part.name for part in fields(Question)}
    found = []
    for content in tomllib.loads(path.read_text(encoding="utf-8")).get("question", []):
        if {*content} - known:
            raise ArgumentError(f"A question has {', '.join(sorted(known))}. Found {sorted({*content} - known)}.")
        found.append(Question(content["text"], tuple(content["claims"]), content.get("yes", 0)))
    return found


def answers(questions: Sequence[Question], found: Sequence[Judged]) -> Table:
    """A row a question: how many of the claims on it say yes, in the paper and here, of those that were run."""
    rows = []
    for question in questions:
        asked = question.among(found)
        if asked:
            items = ", ".join(dict.fromkeys(each.item.label for each, _ in asked))
            row = {"question": question.text, "paper": _printed(question, asked), "items": items}
            rows.append(row | {way.replace("_", " "): _ours(question, asked, way) for way in (PER_RUN, MEAN_CURVE)})
    return Table(COLUMNS, tuple(rows))


def _printed(question: Question, asked: Sequence[tuple[Judged, Claim]]) -> str:
    yes = [question.yes == 0 or claim.value * question.yes > 0 for _, claim in asked]
    return f"{sum(yes)} of {len(asked)}"


def _ours(question: Question, asked: Sequence[tuple[Judged, Claim]], way: str) -> str:
    """How many say yes, how many clearly so or clearly not; `-` where no protocol is involved."""
    if way == MEAN_CURVE and all(set(each.verdicts[claim.key]) == {ANY} for each, claim in asked):
        return "-"
    said = [one for each, claim in asked if (one := _answer(question, each, claim, way)) is not None]
    if not said:
        return "not run"
    counts = Counter(said)
    told = f"{sum(yes for yes, _ in said)} of {len(said)}"
    if not question.yes or all(clear is None for _, clear in said):
        return told
    refuted = f", {counts[False, True]} clearly not" if counts[False, True] else ""
    return f"{told} ({counts[True, True]} clearly{refuted})"


def _answer(question: Question, judged: Judged, claim: Claim, way: str) -> tuple[bool, bool | None] | None:
    """Whether a claim says yes, and whether clearly (None: no spread to tell by); None where it was not run."""
    ours = number_of(judged.built.numbers, claim.key, way)
    if ours is None:
        return None
    if question.yes:
        return ours.mean * question.yes > 0, None if ours.std is None else is_clear(ours)
    verdicts = judged.verdicts[claim.key]
    return verdicts.get(way, verdicts.get(ANY)) is Verdict.REPRODUCED, None
