"""Run what is missing for items of the paper: `python -m paper.run --stage 1 --store DIR --jobs 2`.

Runs come in the order of their importance, and each is recorded epoch by epoch: it can be killed at any time, and the
same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heldin.errors import HeldinError
from heldin.lab.engine import run_all
from heldin.lab.progress import Progress
from heldin.lab.reproducing import Item, chosen, in_order
from heldin.lab.store import Store
from paper.data import prepared
from paper.items import ITEMS

STAGES = (1, 2, 3, 4)


def run(
    profile: str,
    items: Sequence[Item],
    store: Path,
    *,
    jobs: int = 2,
    data_root: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run what these items miss, the most important first; a second call goes on."""
    specs = in_order(items, profile)
    if specs:
        data = prepared(store / "data", data_root)
        run_all(specs, Store(store), jobs=jobs, data_root=data, progress=Progress(quiet=quiet))


def plan(profile: str, items: Sequence[Item]) -> str:
    """What would be run, and how long that takes; a run counts for the first item that needs it."""
    lines, known = [], set()
    for item in sorted(items, key=lambda item: item.stage):
        specs = {*item.specs(profile)}
        text = f"stage {item.stage}  {item.label:<22}{len(specs):>5} runs, {len(specs - known):>4} of its own"
        lines.append(
            f"{text}{item.minutes(profile, without=known):>8.1f} min" + ("  LACKS " + item.lacking) * bool(item.lacking)
        )
        known |= specs
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m paper.run", description=__doc__)
    parser.add_argument("items", nargs="*", default=[], help="labels, such as tab:kfoldl; all by default")
    parser.add_argument("--stage", type=int, action="append", choices=STAGES, help="only items of this stage")
    parser.add_argument("--profile", default="laptop", choices=("laptop", "paper"))
    parser.add_argument("--store", type=Path, default=Path("paper-runs"))
    parser.add_argument("--data", type=Path, default=None, help="data folder; HELDIN_DATA by default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--list", action="store_true", help="say what would be run, and how long it takes")
    given = parser.parse_args(arguments)
    known = {item.label: item for item in ITEMS}
    try:
        items = [i for i in chosen(known, given.items or ["all"]) if given.stage is None or i.stage in given.stage]
        if given.list:
            sys.stdout.write(plan(given.profile, items) + "\n")
        else:
            run(given.profile, items, given.store, jobs=given.jobs, data_root=given.data, quiet=given.quiet)
    except HeldinError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
