"""From records to files: the tables and figures of each item, the same bytes each time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from heldin.lab.reproducing.items import Built, Item, Runs

TABLES, FIGURES = "tables", "figures"
"""The folders they go to."""


def build(items: Sequence[Item], runs: Runs) -> dict[str, Built]:
    """What every item makes of the records."""
    return {item.label: item.build(runs) for item in items}


def write_all(built: Mapping[str, Built], folder: Path) -> list[Path]:
    """All tables, as markdown and csv, and all figures, as png and their data as csv."""
    written: list[Path] = []
    for label, found in built.items():
        written += [
            *_tables(found, folder / TABLES / named(label)),
            *_figures(found, folder / FIGURES / named(label), label),
        ]
    return written


def named(text: str) -> str:
    """A label or a name as part of a path."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", text)


def _tables(built: Built, folder: Path) -> Iterator[Path]:
    for name, table in built.tables.items():
        yield _written(folder / f"{named(name)}.md", table.markdown() + "\n")
        yield _written(folder / f"{named(name)}.csv", table.csv())


def _figures(built: Built, folder: Path, label: str) -> Iterator[Path]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, display in built.figures.items():
        frame = display.frame().to_csv(index=False, lineterminator="\n", float_format="%.6g")
        yield _written(folder / f"{named(name)}.csv", frame)
        axes = display.plot()
        if not axes.get_title():
            axes.set_title(f"{label}, {name}", fontsize="small")
        place = folder / f"{named(name)}.png"
        axes.figure.savefig(place, dpi=80, metadata={"Software": None})
        plt.close(axes.figure)
        yield place


def _written(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place
