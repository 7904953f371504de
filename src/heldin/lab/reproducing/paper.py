"""A folder that declares a paper: its items, its claims, and the records kept beside them.

items.py        ITEMS; `prepared(folder, root, datasets)` where the data needs something done to it; `said(key)`, a
                number's key in words
claims.toml     every printed number
questions.toml  what several claims bear on together; may be missing
about.md        what stands at the head of the page
results/        finished runs, by profile
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from heldin.errors import ArgumentError
from heldin.lab.reproducing.claims import Claim, claims_from_toml
from heldin.lab.reproducing.committing import read_records
from heldin.lab.reproducing.items import Built, Item, Runs
from heldin.lab.reproducing.questions import Question, questions_from_toml
from heldin.lab.reproducing.verdicts import Judged

LAPTOP, AS_PRINTED = PROFILES = ("laptop", "paper")

Prepared = Callable[[Path, "Path | str | None", Iterable[str]], "Path | str | None"]
"""A folder to put things into, the data root, names of datasets -> the data root to use."""


def as_it_is(folder: Path, root: Path | str | None, datasets: Iterable[str]) -> Path | str | None:
    """Data that needs nothing done to it."""
    return root


@dataclass(frozen=True)
class Paper:
    """What a folder declares.

    Attributes:
        folder: the place.
        items: by label.
        prepared: makes the data ready.
        said: the key of a number in words.
        anew: leave the records kept beside them alone.
    """

    folder: Path
    items: Mapping[str, Item]
    prepared: Prepared = as_it_is
    said: Callable[[str], str] = str
    anew: bool = False

    @cached_property
    def claims(self) -> list[Claim]:
        """Every printed number."""
        return claims_from_toml(self.folder / "claims.toml")

    @cached_property
    def questions(self) -> list[Question]:
        """What several claims bear on together."""
        return questions_from_toml(self.folder / "questions.toml")

    @cached_property
    def about(self) -> str:
        """What stands at the head of the page."""
        return (self.folder / "about.md").read_text(encoding="utf-8")

    def judged(self, built: Mapping[str, Built]) -> list[Judged]:
        """What was built of items, with the claims on them."""
        return [
            Judged(self.items[label], tuple(c for c in self.claims if c.item == label), found, self.said)
            for label, found in built.items()
        ]

    def results(self, profile: str) -> Path:
        """Where the finished runs of a profile are kept."""
        return self.folder / "results" / profile

    def kept(self, profile: str) -> Runs:
        """The finished runs kept with the code; none where all is to be run anew."""
        return Runs(profile, ()) if self.anew else read_records(self.results(profile), profile)


def load_paper(folder: Path) -> Paper:
    """The paper declared in a folder."""
    place = folder.resolve()
    missing = [name for name in ("items.py", "claims.toml", "about.md") if not (place / name).is_file()]
    if missing:
        raise ArgumentError(
            f"{folder} should declare a paper: items.py, claims.toml, about.md. Not there: {', '.join(missing)}. "
            "The paper's own is the folder `paper` of heldin's repository: go there, or name it with --paper."
        )
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    try:
        declared = importlib.import_module(f"{place.name}.items")
    except (ImportError, SyntaxError) as error:
        raise ArgumentError(
            f"{folder} should declare a paper in items.py. Found that it cannot be imported: {error}. Its files import "
            "each other by the folder's name, so a copy has to keep that."
        ) from error
    if Path(str(declared.__file__)).parent != place:
        raise ArgumentError(
            f"{folder} should declare a paper in items.py. Found that Python takes {place.name}.items from "
            f"{Path(str(declared.__file__)).parent}. Go to another folder, or give it another name."
        )
    items = {item.label: item for item in declared.ITEMS}
    return Paper(place, items, getattr(declared, "prepared", as_it_is), getattr(declared, "said", str))
