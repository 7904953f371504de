"""README.md of this folder, from the records: what the paper prints, what we found, and the verdict by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import ANY, Built, Claim, Item, Runs, Verdict, claims_from_toml, in_order, judge, number_of
from heldin.lab.tables import Table
from paper.making import MEAN_CURVE, PER_RUN

FOLDER = Path(__file__).parent
CLAIMS = FOLDER / "claims.toml"
RESULTS = FOLDER / "results"
PAGE = FOLDER / "README.md"

INTRODUCTION = """\
# The paper, item by item

*Disparity Between Batches as a Signal for Early Stopping* (Forouzesh and Thiran, 2021): every table and figure is
declared in a file of this folder, every printed number stands in `claims.toml`. This page is made from the records in
`results/` by `python -m paper.build`, and a test holds it to them.

Two profiles: `paper` is the setting as the paper has it, `laptop` asks the same question at a size two cores finish.
All numbers below are of the profile **{profile}**: {num_runs} runs{progress}.
Its sizes were fixed by the time an epoch takes, before any outcome was seen; `settings.py` says what all of
them share, and each item below how it differs from the paper. Absolute numbers of narrow networks on few
samples are not those of the paper's; what can be held against it is which way of stopping is ahead,
what goes with what, and what rises or falls.

**The rule.** A number is *reproduced* where ours is within the claim's tolerance (without one: 2 standard deviations,
the paper's and ours together) and lies on the same side of the number it is compared with; it has the *same direction*
where it only lies on the same side; otherwise it is *not reproduced*. A statement (a difference, a trend) is
*reproduced* where ours has the sign claimed and exceeds its standard error, and has the *same direction* where it only
has the sign. *Not run* is what there is no number for.

Where a stopping epoch is involved there are two verdicts: *per run*, where the rule sees the curve of one run, as one
has it in practice, and *mean curve*, where it sees the mean curve over the seeds, as the paper's tables imply.
"""


def page(items: Sequence[Item], built: Mapping[str, Built], runs: Runs, claims: Sequence[Claim] | None = None) -> str:
    """The whole page."""
    claims = claims_from_toml(CLAIMS) if claims is None else claims
    by_item = {item.label: [claim for claim in claims if claim.item == item.label] for item in items}
    judged = {label: _judged(some, built[label]) for label, some in by_item.items()}
    parts = [
        INTRODUCTION.format(profile=runs.profile, num_runs=len(runs.records), progress=_progress(items, runs)),
        "## In one table",
        _summary(items, judged),
    ]
    parts += ["## What is claimed in words", _statements(by_item, built, judged), "## Every number"]
    for item in items:
        parts.append(_section(item, by_item[item.label], built[item.label], judged[item.label], runs.profile))
    return "\n\n".join(part.strip() for part in parts) + "\n"


Judged = Mapping[str, Mapping[str, Verdict]]


def _judged(claims: Sequence[Claim], built: Built) -> dict[str, dict[str, Verdict]]:
    """The verdicts on each claim: under both protocols, or the one there is."""
    known = {claim.key: claim for claim in claims}
    return {
        claim.key: {protocol: judge(claim, built.numbers, known, protocol) for protocol in _protocols(claim, built)}
        for claim in claims
    }


def _protocols(claim: Claim, built: Built) -> tuple[str, ...]:
    found = built.numbers.get(claim.key, {})
    return (ANY,) if not found or set(found) == {ANY} else (PER_RUN, MEAN_CURVE)


def _progress(items: Sequence[Item], runs: Runs) -> str:
    """How much of the profile is there yet: verdicts that rest on few seeds still move."""
    wanted = len(in_order(items, runs.profile))
    if len(runs.records) >= wanted:
        return ""
    return f" of {wanted}, so **the sweep is unfinished**, and verdicts that rest on one seed are not final"


def _summary(items: Sequence[Item], judged: Mapping[str, Judged]) -> str:
    rows = []
    for item in items:
        counts = Counter(verdict for verdicts in judged[item.label].values() for verdict in _distinct(verdicts))
        rows.append(
            {"item": ", ".join((item.label, *item.also)), "claim": item.claim}
            | {verdict.value: counts.get(verdict, 0) for verdict in Verdict}
        )
    totals = {verdict.value: sum(int(row[verdict.value]) for row in rows) for verdict in Verdict}
    rows.append({"item": "all", "claim": "", **totals})
    columns = ("item", "claim", *(verdict.value for verdict in Verdict))
    return Table(columns, tuple(rows)).markdown() + (
        "\n\nCounted are verdicts on numbers and statements; two where the two protocols are both given."
    )


def _distinct(verdicts: Mapping[str, Verdict]) -> list[Verdict]:
    return list(verdicts.values())


def _statements(
    by_item: Mapping[str, Sequence[Claim]], built: Mapping[str, Built], judged: Mapping[str, Judged]
) -> str:
    rows = [
        {"item": label, **_row(claim, built[label], judged[label][claim.key])}
        for label, claims in by_item.items()
        for claim in claims
        if claim.statement
    ]
    return Table(("item", "claim", "paper", "ours", "runs", "verdict"), tuple(rows)).markdown()


def _section(item: Item, claims: Sequence[Claim], built: Built, judged: Judged, profile: str) -> str:
    lines = [f"### {', '.join((item.label, *item.also))}", item.claim]
    lines.append(f"*{claims[0].where}.* " * bool(claims) + f"**{profile.capitalize()}:** {item.differs}")
    if item.lacking:
        lines.append(f"**Lacking:** {item.lacking}.")
    numbers = [claim for claim in claims if not claim.statement]
    rows = tuple(_row(claim, built, judged[claim.key]) for claim in numbers)
    if rows:
        lines.append(Table(("claim", "paper", "ours", "runs", "verdict"), rows).markdown())
    return "\n\n".join(lines)


def _row(claim: Claim, built: Built, verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    found = [(protocol, number_of(built.numbers, claim.key, protocol)) for protocol in verdicts]
    said = claim.text or claim.key
    return {
        "claim": said,
        "paper": _paper(claim),
        "ours": "; ".join(_named(protocol, _shown(number)) for protocol, number in found if number is not None) or "-",
        "runs": "; ".join(dict.fromkeys(str(number.num) for _, number in found if number is not None)) or "-",
        "verdict": "; ".join(_named(protocol, verdict.value) for protocol, verdict in verdicts.items()),
    }


def _paper(claim: Claim) -> str:
    if claim.statement and abs(claim.value) == 1.0:
        return "above 0" if claim.value > 0 else "below 0"
    return f"{claim.value:g}" + (f" ± {claim.std:g}" if claim.std is not None else "")


def _shown(number: Estimate) -> str:
    return f"{number.mean:.4g}" + (f" ± {number.std:.2g}" if number.std is not None else "")


def _named(protocol: str, text: str) -> str:
    return text if protocol == ANY else f"{text} ({protocol.replace('_', ' ')})"
