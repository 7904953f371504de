"""From records to tables, figures and the page: `python -m paper.build [--store DIR] [--figures DIR]`.

With `--store` the finished runs of a store are first put into `results/`. Everything after that follows from `results/`
alone, and is the same each time.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from heldin.lab.committing import read_records, records_of, write_records
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.store import Store
from paper.items import ITEMS
from paper.page import PAGE, RESULTS, page


def keep(store: Path, profile: str, items: Sequence[Item] = ITEMS, *, folder: Path = RESULTS) -> int:
    """Put the finished runs of these items into `results/`, beside those that are there; how many there are now."""
    old = read_records(folder / profile, profile)
    records, units = records_of(Store(store), (spec for item in items for spec in item.specs(profile)))
    merged = {record.id: record for record in (*old.records, *records)}
    write_records(folder / profile, merged.values(), {**old.units, **units})
    return len(merged)


def build_all(runs: Runs, items: Sequence[Item] = ITEMS) -> dict[str, Built]:
    """What every item makes of the records."""
    return {item.label: item.build(runs) for item in items}


def write_tables(built: Built, label: str, folder: Path) -> None:
    """The tables of an item, as markdown and csv."""
    for name, table in built.tables.items():
        place = _place(folder, label, name)
        place.with_suffix(".md").write_text(table.markdown() + "\n")
        place.with_suffix(".csv").write_text(table.csv())


def write_figures(built: Built, label: str, folder: Path) -> None:
    """The figures of an item, as png, and their data as csv."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, display in built.figures.items():
        place = _place(folder, label, name)
        place.with_suffix(".csv").write_text(display.frame().to_csv(index=False, lineterminator="\n"))
        axes = display.plot()
        axes.figure.savefig(place.with_suffix(".png"), dpi=100, metadata={"Software": None})
        plt.close(axes.figure)


def _place(folder: Path, label: str, name: str) -> Path:
    place = folder / label.replace(":", "-")
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)}.x"  # the suffix is replaced


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m paper.build", description=__doc__)
    parser.add_argument("--profile", default="laptop", choices=("laptop", "paper"))
    parser.add_argument("--store", type=Path, help="put its finished runs into results/ first")
    parser.add_argument("--out", type=Path, help="write all tables and figures there, too")
    given = parser.parse_args(arguments)
    if given.store is not None:
        sys.stdout.write(f"{keep(given.store, given.profile)} runs in {RESULTS / given.profile}\n")
    runs = read_records(RESULTS / given.profile, given.profile)
    built = build_all(runs)
    for label, found in built.items():
        if given.out is not None:
            write_tables(found, label, given.out)
            write_figures(found, label, given.out)
    PAGE.write_text(page(ITEMS, built, runs))
    sys.stdout.write(f"{PAGE} is written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
