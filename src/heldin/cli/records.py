"""Which records a command reads, and which settings and stopping methods it compares."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heldin.cli.options import DEFAULT_STORE, option_name
from heldin.cli.output import note, note_left_out
from heldin.errors import ArgumentError, DamagedRunError, StoreError, near_match
from heldin.lab.curves import Group, groups, require_recorded
from heldin.lab.methods import Kind, StoppingMethod, default_rule_method, methods_for
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store, explain_os_errors
from heldin.rules import ConsecutiveRises, NthRise, Rule


def read_records(store: Path, ids: list[str] | None, wanted: Mapping[str, object]) -> list[RunRecord]:
    """The records of the runs that the options select. Damaged runs are named and left out, with exit code 3.

    `ids` are the beginnings of run ids. `wanted` maps a field of a spec to the value or values it may have. None
    selects all.
    """
    if not _is(Path.is_dir, store / "runs"):
        if _is(Path.is_file, store):
            raise StoreError(f"--store should be a folder. Found the file {store}. Name the folder with the records.")
        raise StoreError(
            f"There are no records in {store}. Start with `heldin run`, or name their folder with --store."
        )
    given = {name: value for name, value in wanted.items() if value is not None and value != []}
    allowed = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    specs: list[RunSpec] = []

    def selected(spec: RunSpec) -> bool:
        specs.append(spec)
        by_id = not ids or any(spec.id.startswith(start) for start in ids)
        return by_id and all(getattr(spec, name) in values for name, values in allowed.items())

    damaged: list[DamagedRunError] = []
    found = Store(store).records(selected, damaged=damaged.append)
    for error in damaged:
        note_left_out(error)
    if damaged and not found:
        raise StoreError(f"None of the selected runs in {store} can be read. See above.")
    if not found:
        raise ArgumentError(_explain_empty(store, specs, ids, allowed))
    return found


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    try:
        return kind(path)
    except OSError:  # a name that is too long, or a folder that may not be read
        return False


def _explain_empty(
    store: Path, specs: list[RunSpec], ids: list[str] | None, allowed: Mapping[str, list[object]]
) -> str:
    """Why no run is selected: the first option that no run satisfies, or all of them together."""
    if not specs:
        return f"There are no runs in {store}. Start with `heldin run`."
    known = [spec.id for spec in specs]
    if ids and not any(run.startswith(start) for run in known for start in ids):
        return f"No run in {store} has an id that starts with {' or '.join(ids)}.{near_match(ids[0], known)}"
    for name, values in allowed.items():
        present = {getattr(spec, name) for spec in specs}
        if not present & {*values}:
            words = sorted("unset" if value is None else str(value) for value in present)
            return (
                f"No run in {store} has {option_name(name)} {' or '.join(map(str, values))}. "
                f"There are runs with {', '.join(words)}.{near_match(str(values[0]), words)}"
            )
    return f"None of the {len(specs)} runs in {store} satisfies all of these options. `heldin status` lists them."


def require_store(store: Path, specs: Iterable[RunSpec] = ()) -> None:
    """Raise an error if a folder cannot be written, was written by a newer heldin, or has one of these runs damaged."""
    probe = store / "runs" / f".write-test-{os.getpid()}"
    with explain_os_errors(store, "Choose another place with --store."):
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    records = Store(store)
    records.folders(damaged=lambda error: None)
    problems = []
    for spec in specs:
        try:
            records.folder(spec).require_whole()
        except DamagedRunError as error:
            problems.append(str(error))
    if problems:
        verb = "is" if len(problems) == 1 else "are"
        raise DamagedRunError("\n".join([f"{len(problems)} of the runs {verb} damaged.", *problems]))


def store_option(store: Path) -> str:
    """The option that names this store; empty for the default one."""
    return "" if store == DEFAULT_STORE else f" --store {shlex.quote(str(store))}"


def timings_of(store: Path, record: RunRecord) -> list[dict[str, Any]]:
    """The timings of a run; lines that cannot be read are left out, with a note."""
    try:
        return Store(store).folder(record.spec).timings(damaged=lambda error: note(f"Left out: {error}"))
    except DamagedRunError as error:
        note(f"Without the seconds of run {record.id}: {error}")
        return []


def finished_groups(records: Sequence[RunRecord], signals: list[str] | None = None) -> list[Group]:
    """The settings with finished runs; an error if there are none, or if a signal was never recorded."""
    found = [group for group in groups(records) if group.full or group.folded]
    if not found:
        raise ArgumentError(
            f"At least one run should be finished. Found {len(records)} unfinished runs. "
            "Repeat the `heldin run ...` command: it continues where it was interrupted."
        )
    for signal in signals or ():
        require_recorded([record for group in found for record in group.full], signal)
    return found


def warn_if_hardly_learned(found: Iterable[Group]) -> None:
    """Print a note on each setting whose network has hardly begun to learn, or not more than the largest class."""
    from heldin.lab.conclusion import learning_warning

    for group in found:
        if (warning := learning_warning(group)) is not None:
            note(f"{group.title}: {warning}")


def select_methods(
    group: Group, signals: list[str] | None, *, rule: str = "nth_rise", patience: int = 5
) -> list[StoppingMethod]:
    """The stopping methods of a group, for these signals (None: all) and these rules.

    `rule` is `"nth_rise"` or `"consecutive_rises"`, both with `patience`, `"own"` for the default rule of a signal,
    or `"all"`.
    """
    rules: dict[str, Rule] = {"nth_rise": NthRise(patience), "consecutive_rises": ConsecutiveRises(patience)}

    def selected(method: StoppingMethod) -> bool:
        if signals is not None and method.kind is Kind.SIGNAL and method.signal not in signals:
            return False
        if method.rule is None or rule == "all":
            return True
        default = default_rule_method(method.signal).rule if method.signal is not None else NthRise(patience)
        return method.rule == rules.get(rule, default)

    return [method for method in methods_for(group, patience=patience) if selected(method)]
