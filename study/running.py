"""Running the study: the trials that choose the settings, and then all runs of the settings."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path

from heldin.lab.curves import setting_of
from heldin.lab.engine import Progress, require_runnable, run_all
from heldin.lab.run import run
from heldin.lab.spec import RunSpec, spec_from
from heldin.lab.store import RunRecord, Store, write_atomically
from study.choice import Trial, is_decided, trials
from study.settings import SLOTS, Slot, fold_runs, full_runs

CHOSEN = Path(__file__).parent / "chosen.json"


def recorded_trials(slot: Slot, store: Store) -> list[Trial]:
    """Return the trials of a slot that are done."""
    return trials(slot, lambda spec: store.record(spec) if store.folder(spec).done else None)


def run_trials(store: Store, *, jobs: int, data_root: Path | None, slots: Sequence[Slot] = SLOTS) -> None:
    """Run the trials of all slots until the rule has decided on each. Slots with short runs come first."""
    from joblib import Parallel, delayed

    root = str(store.root.resolve())
    ordered = sorted(slots, key=_work)
    require_runnable([slot.spec for slot in ordered], data_root)
    Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")(
        delayed(_run_trials)(slot, root, data_root) for slot in ordered
    )


def _run_trials(slot: Slot, root: str, data_root: Path | None) -> None:
    store = Store(root)

    def run_one(spec: RunSpec) -> RunRecord:
        return run(spec, store, data_root=data_root)

    trials(slot, run_one)


def _work(slot: Slot) -> float:
    """Estimate the work of a trial: epochs times samples, times 30 for convolutions, 300 for the largest networks."""
    spec = slot.trial(1.0)
    is_deep = spec.model in ("alexnet", "vgg8", "resnet8")
    factor = 300.0 * spec.scale**2 if is_deep else 1.0 if spec.model.startswith(("mlp", "fully")) else 30.0
    return spec.epochs * (spec.num_samples or 0) * factor


def write_chosen(store: Store, path: Path = CHOSEN) -> int:
    """Write the settings of all slots that are filled, with their trials. Return how many slots are undecided."""
    slots = {slot: recorded_trials(slot, store) for slot in SLOTS}
    content = [
        {
            "slot": slot.name,
            "setting": found[-1].setting.as_dict() if found[-1].passes else None,
            "trials": [_summary(trial) for trial in found],
        }
        for slot, found in slots.items()
        if is_decided(found)
    ]
    write_atomically(path, json.dumps(content, indent=1) + "\n")
    return sum(not is_decided(found) for found in slots.values())


def _summary(trial: Trial) -> dict[str, object]:
    learning = trial.learning
    return {
        "learning_rate": trial.spec.learning_rate,
        "best": learning.best,
        "of_majority": round(learning.of_majority, 4),
        "rise": round(learning.rise, 4),
        "jitter": round(learning.jitter, 5),
        "fails": list(trial.failures),
    }


def chosen_settings(path: Path = CHOSEN) -> dict[str, RunSpec]:
    """Return the settings of the study, by the name of their slot."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {each["slot"]: spec_from(each["setting"]) for each in content if each["setting"] is not None}


def study_runs(settings: Sequence[RunSpec]) -> list[RunSpec]:
    """Return all runs of these settings: those on all the data, then the folds, seed by seed."""
    runs = [spec for setting in settings for spec in (*full_runs(setting), *fold_runs(setting))]
    position = {setting_of(setting).id: number for number, setting in enumerate(settings)}
    return sorted(runs, key=lambda spec: (spec.fold is not None, spec.seed, position[setting_of(spec).id]))


def run_study(
    store: Store,
    *,
    jobs: int,
    data_root: Path | None,
    quiet: bool = False,
    seeds: Sequence[int] | None = None,
    finished: Container[str] = (),
) -> int:
    """Run what is missing; return how many runs there were. `finished` are ids of runs that count as done."""
    specs = [
        spec
        for spec in study_runs(list(chosen_settings().values()))
        if (seeds is None or spec.seed in seeds) and spec.id not in finished and not store.folder(spec).done
    ]
    if specs:
        require_runnable(specs, data_root)
        run_all(specs, store, jobs=jobs, data_root=data_root, progress=Progress(quiet=quiet))
    return len(specs)
