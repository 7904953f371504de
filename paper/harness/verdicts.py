"""The paper's numbers next to ours with a verdict on each, and headlines: what several claims say together."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from paper.harness.claims import MIN_SEEDS, NO_PROTOCOL, Claim, Verdict, is_clear, judge, number_of
from paper.harness.items import Item, Result

PER_RUN, MEAN_CURVE = PROTOCOLS = (Protocol.PER_RUN.value, Protocol.MEAN_CURVE.value)
CLAIM_COLUMNS = ("claim", "paper", "ours", "n", "compared with", "verdict")
HEADLINE_COLUMNS = ("claim", "paper", "ours, at the paper's size", "ours, at laptop size", "verdict", "items")
AT_SIZE = {"paper": "ours, at the paper's size", "laptop": "ours, at laptop size"}
"""The columns of our numbers, by profile; the paper's own size comes first."""
HOLDS, HOLDS_NOT = 2 / 3, 1 / 3  # at least, and at most, this fraction of the comparisons
CLAIMED = "the paper claims"
SIZE_NAMES = {"paper": "paper's size", "laptop": "laptop"}
KINDS = {"statements": True, "printed numbers": False}
"""The columns of the summary, and whether they count statements."""
COUNTED = (
    (Verdict.REPRODUCED,),
    (Verdict.SAME_DIRECTION,),
    (Verdict.NOT_REPRODUCED,),
    (Verdict.NOT_RUN, Verdict.NEVER_STOPPED),
)
"""The verdicts that each number of the summary counts."""


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
            claim.key: {name: self._verdict(claim, claims, name) for name in self._protocols(claim)}
            for claim in self.claims
        }

    def _verdict(self, claim: Claim, claims: Mapping[str, Claim], protocol: str) -> Verdict:
        found = judge(claim, self.result.numbers, claims, protocol)
        is_missing = number_of(self.result.numbers, claim.key, protocol) is None
        has_remark = protocol in self.result.remarks.get(claim.key, {})
        return Verdict.NEVER_STOPPED if found is Verdict.NOT_RUN and is_missing and has_remark else found

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


def _counts_text(counts: Counter[Verdict]) -> str:
    return " / ".join(str(sum(counts[verdict] for verdict in each)) for each in COUNTED) if counts else "-"


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
class Headline:
    """What several claims of the paper say together.

    Args:
        text: The claim in one sentence.
        claims: Patterns of items and keys of claims, such as `tab:kfold?/*.gd-cv.loss`.
        sign: The sign of a number that agrees with it; 0 if a claim agrees when it is reproduced.
        unit: The unit of the numbers; None if their mean says nothing.
        further: Whether it stands in the second table, below the headlines.
    """

    text: str
    claims: tuple[str, ...]
    sign: int = 0
    unit: str | None = None
    further: bool = False

    def select(self, judged: Sequence[JudgedItem]) -> list[tuple[JudgedItem, Claim]]:
        """Return its claims. If a sign agrees with it, they have to be statements."""
        found = [
            (each, claim)
            for each in judged
            for claim in each.claims
            if any(fnmatchcase(f"{claim.item}/{claim.key}", pattern) for pattern in self.claims)
        ]
        other = next((claim for _, claim in found if self.sign and not claim.statement), None)
        if other is not None:
            raise ArgumentError(
                f"{self.text!r} is judged by a sign, so its claims should be statements. Found "
                f"{other.item}/{other.key}, a number. Narrow the patterns of the headline."
            )
        return found

    def mean_text(self, values: Sequence[float]) -> str:
        """Return the mean of numbers with its unit; empty without a unit or numbers."""
        if self.unit is None or not values:
            return ""
        return f"{sum(values) / len(values):+.3g} {self.unit}".strip()


def read_headlines(path: Path) -> list[Headline]:
    """Read the headlines of a TOML file; none if the file does not exist."""
    if not path.is_file():
        return []
    known = {field.name for field in fields(Headline)}
    found = []
    for content in tomllib.loads(path.read_text(encoding="utf-8")).get("headline", []):
        unknown = sorted({*content} - known)
        if unknown:
            raise ArgumentError(f"The fields of a headline are {', '.join(sorted(known))}. Found {unknown}.")
        found.append(Headline(**{**content, "claims": tuple(content["claims"])}))
    return found


def headline_table(headlines: Sequence[Headline], judged: Mapping[str, Sequence[JudgedItem]]) -> Table:
    """Return one row per headline: the paper's numbers, ours in each profile, and what follows from them.

    Args:
        headlines: The claims.
        judged: profile -> items with their verdicts.
    """
    rows = []
    for headline in headlines:
        found = {profile: headline.select(items) for profile, items in judged.items()}
        claims = max(found.values(), key=len, default=[])  # a profile may have runs of some items only
        if claims:
            agreeing = sum(headline.sign == 0 or claim.value * headline.sign > 0 for _, claim in claims)
            ours = {profile: _Comparison(headline, each, len(claims)) for profile, each in found.items()}
            known = {profile: ours[profile] for profile in AT_SIZE if profile in ours and ours[profile].per_run.num}
            verdicts = [f"{each.verdict} ({_size_text(each, profile)})" for profile, each in known.items()]
            row = {
                "claim": headline.text,
                "paper": _listed(headline.mean_text(_printed_values(claims)), f"{agreeing} of {len(claims)}"),
                "verdict": "; ".join(verdicts) or Verdict.NOT_RUN.value,
                "items": ", ".join(dict.fromkeys(each.item.label for each, _ in claims)),
            }
            rows.append(
                row | {AT_SIZE[profile]: known[profile].text if profile in known else "not run" for profile in AT_SIZE}
            )
    return Table(HEADLINE_COLUMNS, tuple(rows))


def _is_printed(claim: Claim) -> bool:
    """Return whether the paper prints a number; 1 and -1 stand for a sign."""
    return abs(claim.value) != 1.0


def _printed_values(claims: Iterable[tuple[JudgedItem, Claim]]) -> list[float]:
    """Return the numbers that the paper prints."""
    return [claim.value for _, claim in claims if _is_printed(claim)]


def _listed(*texts: str) -> str:
    return ", ".join(text for text in texts if text)


def _size_text(comparison: _Comparison, profile: str) -> str:
    """Return the size behind a verdict, the number of seeds at the paper's size, and the verdict on the mean curve.

    With few seeds the mean curve is that of a run or two, so it has no verdict.
    """
    other = comparison.mean_curve
    seeds = comparison.per_run.seeds if profile == "paper" else ""
    differs = other is not None and other.verdict != comparison.verdict and not comparison.per_run.has_few_seeds
    return _listed(SIZE_NAMES[profile], seeds, f"{other.verdict} on the mean curve" if other and differs else "")


@dataclass(frozen=True)
class _Comparison:
    """Our numbers for a headline in one profile, under both protocols."""

    headline: Headline
    claims: Sequence[tuple[JudgedItem, Claim]]
    num_claimed: int  # how many comparisons the paper has

    @cached_property
    def per_run(self) -> _Agreement:
        return _Agreement.of(self.headline, self.claims, PER_RUN)

    @cached_property
    def mean_curve(self) -> _Agreement | None:
        """None if no number depends on the protocol."""
        has_both = any(MEAN_CURVE in each.verdicts[claim.key] for each, claim in self.claims)
        found = _Agreement.of(self.headline, self.claims, MEAN_CURVE) if has_both else None
        return found if found is not None and found.num else None

    @property
    def verdict(self) -> str:
        return self.per_run.verdict

    @property
    def text(self) -> str:
        """Describe it: the mean, the paper's if it has more comparisons, how many agree, the same on the mean curve."""
        known = [(each, claim) for each, claim in self.claims if number_of(each.result.numbers, claim.key, PER_RUN)]
        printed = self.headline.mean_text(_printed_values(known)) if len(known) < self.num_claimed else ""
        ours = self.headline.mean_text(self.per_run.printed)
        text = _listed(f"{ours} (paper there: {printed})" if printed else ours, self.per_run.counts)
        other = self.mean_curve
        if other is None or other.counts == self.per_run.counts:
            return text
        return f"{text}; on the mean curve {_listed(self.headline.mean_text(other.printed), other.counts)}"


@dataclass(frozen=True)
class _Agreement:
    """Our numbers for the claims of a headline: those that agree with it, and those that clearly do or do not."""

    num: int
    printed: tuple[float, ...]  # those for which the paper prints a number; all if it prints none
    agreeing: int
    clearly: int | None  # None without a spread over seeds
    clearly_not: int
    mean_agrees: bool | None  # whether the mean has the sign of the headline; None if the mean says nothing
    num_seeds: tuple[int, int] | None  # the fewest and the most runs behind a number; None if it is not a mean of runs

    @classmethod
    def of(cls, headline: Headline, claims: Sequence[tuple[JudgedItem, Claim]], protocol: str) -> _Agreement:
        values, printed, sizes, agrees = [], [], [], Counter[tuple[bool, bool | None]]()
        for judged, claim in claims:
            ours = number_of(judged.result.numbers, claim.key, protocol)
            if ours is None:
                continue
            values.append(ours.mean)
            printed += [ours.mean] * _is_printed(claim)
            sizes.append(ours.num)
            if headline.sign:
                agrees[ours.mean * headline.sign > 0, None if ours.std is None else is_clear(ours)] += 1
            else:
                verdicts = judged.verdicts[claim.key]
                agrees[verdicts.get(protocol, verdicts.get(NO_PROTOCOL)) is Verdict.REPRODUCED, None] += 1
        has_spread = any(clear is not None for _, clear in agrees)
        return cls(
            len(values),
            tuple(printed or values),
            sum(num for (agreeing, _), num in agrees.items() if agreeing),
            agrees[True, True] if has_spread else None,
            agrees[False, True],
            sum(printed or values) * headline.sign > 0 if headline.sign and headline.unit is not None else None,
            (min(sizes), max(sizes)) if headline.sign and sizes and protocol == PER_RUN else None,
        )

    @property
    def seeds(self) -> str:
        if self.num_seeds is None:
            return ""
        fewest, most = self.num_seeds
        return f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"

    @property
    def has_few_seeds(self) -> bool:
        return self.num_seeds is not None and self.num_seeds[1] < MIN_SEEDS

    @property
    def verdict(self) -> str:
        if self.has_few_seeds or self.clearly == 0 == self.clearly_not:
            return "unclear"
        part = self.agreeing / self.num
        if part >= HOLDS and self.mean_agrees is not False:
            return "holds"
        return "does not hold" if part <= HOLDS_NOT and self.mean_agrees is not True else "partly"

    @property
    def counts(self) -> str:
        """How many comparisons agree, and how many clearly do or do not."""
        if self.clearly is None:
            return f"{self.agreeing} of {self.num}"
        refuted = f", {self.clearly_not} clearly not" if self.clearly_not else ""
        return f"{self.agreeing} of {self.num} ({self.clearly} clearly{refuted})"
