"""From a paper's declarations to its finished runs: what is missing, running it, collecting the records."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import shorten

from heldin.cli.records import require_store
from heldin.errors import ArgumentError, DamagedRunError, HeldinError, StoreError
from heldin.lab.bundles import read_records, read_store, record_files, refuse, write_records
from heldin.lab.curves import require_one_version
from heldin.lab.data import describe, fetch
from heldin.lab.data.files import exists
from heldin.lab.engine import Progress, require_runnable, run_all
from heldin.lab.spec import RunSpec
from heldin.lab.store import OnDamage, Store
from paper.harness.claims import Claim, read_claims
from paper.harness.items import Item, Result, Runs, build_items, run_order
from paper.harness.verdicts import Headline, JudgedItem, read_headlines

LAPTOP, AS_PRINTED = PROFILES = ("laptop", "paper")
REMEDY = "Restore the file (git checkout), or train the run yourself: python -m paper run ITEM --rerun."
DATA = "data"  # the folder of a store with prepared data
MAX_CLAIM = 70  # characters of a claim in a list

PrepareData = Callable[[Path, "Path | str | None", Iterable[str]], "Path | str | None"]
"""A folder for prepared data, the data root, names of datasets -> the data root to use."""


def use_data_as_is(folder: Path, root: Path | str | None, datasets: Iterable[str]) -> Path | str | None:
    """Return the data root: nothing has to be prepared."""
    return root


@dataclass(frozen=True)
class Paper:
    """A paper: its items, and a folder with claims.toml, headlines.toml, about.md, judging.md and results/.

    Attributes:
        folder: Where these files are, and where the page, tables and figures are written.
        items: By label.
        prepare_data: Prepares the datasets before they are used.
        describe: The key of a number -> a description.
    """

    folder: Path
    items: Mapping[str, Item]
    prepare_data: PrepareData = use_data_as_is
    describe: Callable[[str], str] = str

    @cached_property
    def claims(self) -> list[Claim]:
        """Every printed number."""
        return read_claims(self.folder / "claims.toml")

    @cached_property
    def headlines(self) -> list[Headline]:
        """What several claims say together."""
        return read_headlines(self.folder / "headlines.toml")

    @cached_property
    def about(self) -> str:
        """The introduction of the page."""
        return (self.folder / "about.md").read_text(encoding="utf-8")

    @cached_property
    def judging(self) -> str:
        """How claims are judged, and what the words and columns of the tables mean."""
        return (self.folder / "judging.md").read_text(encoding="utf-8")

    def results(self, profile: str) -> Path:
        """Return the folder of the bundled records of a profile."""
        return self.folder / "results" / profile

    def judge(self, results: Mapping[str, Result]) -> list[JudgedItem]:
        """Return the items with their claims, results and verdicts."""
        return [
            JudgedItem(self.items[label], tuple(c for c in self.claims if c.item == label), result, self.describe)
            for label, result in results.items()
        ]


@dataclass(frozen=True)
class Part:
    """What is shown of one profile: the finished runs, and the items with their verdicts."""

    runs: Runs
    items: Sequence[JudgedItem]

    @property
    def profile(self) -> str:
        """`"laptop"` or `"paper"`."""
        return self.runs.profile


def require_in_profile(items: Iterable[Item], profile: str) -> None:
    """Refuse an item that has runs in the other profile only. One without any runs belongs to the laptop profile."""
    (other,) = {*PROFILES} - {profile}
    for item in items:
        if not item.specs(profile) and (item.specs(other) or profile == AS_PRINTED):
            reason = f" {item.laptop}" if profile == LAPTOP else ""
            raise ArgumentError(
                f"{item.label} is not run in the profile {profile}, only in the profile {other} (--profile {other})."
                + reason
            )


def missing_runs(
    paper: Paper,
    items: Sequence[Item],
    profile: str,
    store: Path,
    *,
    seeds: Collection[int] | None = None,
    bundled: bool = True,
    damaged: OnDamage = refuse,
) -> list[RunSpec]:
    """Return the runs of these items that are neither bundled nor finished in the store, in the order to run them.

    Args:
        paper: Its declarations.
        items: Some of its items.
        profile: `"laptop"` or `"paper"`.
        store: The folder of the records of new runs.
        seeds: Only these seeds; None for all.
        bundled: Whether bundled records count as finished.
        damaged: Called for each damaged run, which then counts as missing; by default its error is raised.
    """
    specs = [spec for spec in run_order(items, profile) if seeds is None or spec.seed in seeds]
    found = [*read_records(paper.results(profile), specs, damaged, remedy=REMEDY).records] if bundled else []
    bundled_ids = {record.id for record in found}
    found += read_store(Store(store), [spec for spec in specs if spec.id not in bundled_ids], damaged).records
    finished = {record.id for record in found}
    return [spec for spec in specs if spec.id not in finished]


def run_specs(
    paper: Paper,
    specs: Sequence[RunSpec],
    store: Path,
    *,
    jobs: int = 1,
    data_root: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run these specs. Runs that were interrupted are resumed. If the specs are refused, no folder is left behind."""
    if specs:
        with _removed_if_refused(store):
            require_store(store, specs)
            data = _prepare_data(paper, {spec.dataset for spec in specs}, store / DATA, data_root)
            require_runnable(specs, data)
        run_all(specs, Store(store), jobs=jobs, data_root=data, progress=Progress(quiet=quiet))


@contextmanager
def _removed_if_refused(store: Path) -> Iterator[None]:
    """Remove the folders that are created in this block if it raises an error."""
    created = [path for path in (store / DATA, store / "runs", store, *store.parents) if not exists(path)]
    try:
        yield
    except HeldinError:
        with suppress(OSError):
            for path in created:
                if path == store / DATA:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.rmdir()
        raise


def _prepare_data(paper: Paper, datasets: Collection[str], folder: Path, root: Path | str | None) -> Path | str | None:
    """Return the data root to use. Missing datasets are downloaded to `root`, which the errors then name."""
    data = paper.prepare_data(folder, root, datasets)
    missing = [name for name in sorted(datasets) if describe(name, data).state == "missing"]
    for name in missing:
        fetch(name, root)
    return paper.prepare_data(folder, root, datasets) if missing else data


def collect_runs(
    paper: Paper,
    items: Sequence[Item],
    profile: str,
    store: Path | None = None,
    *,
    bundled: bool = True,
    damaged: OnDamage | None = None,
) -> Runs:
    """Return the finished runs of these items: bundled ones first, then those of a store.

    Damaged runs are left out and passed to `damaged`; by default an error that names all of them is raised.

    Raises:
        DamagedRunError: Runs are damaged, and `damaged` is not given.
        StoreError: The store has none of these runs, and the bundled records of an item are missing, empty or ignored;
            or the runs of an item were trained on different data.
    """
    specs = run_order(items, profile)
    problems: list[DamagedRunError] = []
    report = damaged or problems.append
    found = read_records(paper.results(profile), specs if bundled else (), report, remedy=REMEDY)
    records = {record.id: record for record in found.records}
    seconds = found.unit_seconds
    has_store = store is not None and (store / "runs").is_dir()
    stored = read_store(Store(store), specs, report) if store is not None and has_store else None
    if problems:
        raise DamagedRunError("\n".join(map(str, problems)))
    if stored is not None and stored.records:
        records = {record.id: record for record in stored.records} | records
        seconds = {**stored.unit_seconds, **seconds}
    elif store is not None and specs and not bundled:
        label, named = (items[0].label, items[0].label) if len(items) == 1 else ("ITEM", "these items")
        raise StoreError(
            f"There are no finished runs of {named} in {store}, and --store-only ignores the bundled records. Run the "
            f"item (python -m paper run {label} --rerun --profile {profile} --store {shlex.quote(str(store))}), or "
            "leave --store-only out."
        )
    elif profile == LAPTOP or not records:  # few runs of the paper's size are bundled, those of some items
        for item in items:
            _require_bundled(paper.results(profile), item, profile, records.keys())
    require_one_version(records.values())
    return Runs(profile, [records[run] for run in sorted(records)], seconds)


def _require_bundled(folder: Path, item: Item, profile: str, finished: Collection[str]) -> None:
    specs = item.specs(profile)
    present = {*record_files(folder, [spec for spec in specs if spec.id in finished])}
    without = [path.name for path in record_files(folder, specs) if path not in present]
    if without:
        named = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        remedy = "Restore the files (git checkout), or run" if profile == LAPTOP else "Run"
        raise StoreError(
            f"{item.label} should have finished runs in {folder}, or in the folder of --store. Found none of {named}. "
            f"{remedy} the item: python -m paper run {item.label} --profile {profile}."
        )


def build_part(
    paper: Paper,
    items: Sequence[Item],
    profile: str,
    store: Path | None = None,
    *,
    bundled: bool = True,
    damaged: OnDamage | None = None,
) -> Part:
    """Collect the runs of these items and judge their claims. At the paper's size, items without runs are left out."""
    runs = collect_runs(paper, items, profile, store, bundled=bundled, damaged=damaged)
    if profile == AS_PRINTED:
        items = [item for item in items if runs.only(item.specs(profile)).records]
    return Part(runs, paper.judge(build_items(items, runs)))


def add_other_profile(paper: Paper, part: Part) -> list[Part]:
    """Return all items in both profiles, the paper's size first; only `part` if nothing else is bundled."""
    (other,) = {*PROFILES} - {part.profile}
    if not any(paper.results(other).glob("*.jsonl")):
        return [part]
    parts = {part.profile: part, other: build_part(paper, list(paper.items.values()), other)}
    return [parts[profile] for profile in (AS_PRINTED, LAPTOP)]


def bundle_runs(paper: Paper, profile: str, store: Path) -> int:
    """Add the finished runs of a store to the bundled records. Return how many runs are bundled now."""
    if not (store / "runs").is_dir():
        raise StoreError(f"There are no runs to bundle in {store}. Name the folder they were run in with --store.")
    runs = collect_runs(paper, list(paper.items.values()), profile, store)
    write_records(paper.results(profile), runs.records, runs.unit_seconds)
    return len(runs.records)


def plan_rows(
    paper: Paper,
    items: Sequence[Item],
    profile: str,
    store: Path,
    *,
    bundled: bool = True,
    damaged: OnDamage = refuse,
) -> list[dict[str, object]]:
    """Return one row per item, and the sum.

    The columns are the runs of the item, those missing, those missing that no item above has, their minutes, and what
    the item shows.
    """
    absent = {*missing_runs(paper, items, profile, store, bundled=bundled, damaged=damaged)}
    left, rows, total = set(absent), [], 0.0
    for item in sorted(items, key=lambda item: item.stage):
        specs = {*item.specs(profile)}
        new = specs & left
        minutes = item.minutes(new)
        rows.append(
            {
                "item": item.label,
                "runs": len(specs),
                "missing": len(specs & absent),
                "new": len(new),
                "minutes": round(minutes, 1) if minutes or not new else None,
                "shows": shorten(item.claim, MAX_CLAIM, placeholder=" ..."),
            }
        )
        left, total = left - new, total + minutes
    counts = {"runs": len(run_order(items, profile)), "missing": len(absent), "new": len(absent)}
    return [*rows, {"item": "all", **counts, "minutes": round(total, 1) or None, "shows": None}]
