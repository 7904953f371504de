"""The results of the study: what each method of stopping gave on all recorded runs, and which one is the default.

The rule for the default was written before any signal of the study was read. A candidate may replace the paper's rule
if, over settings,

1. its mean regret is lower than that of the paper's rule in both targets, and both bootstrap intervals of the
   difference exclude 0;
2. the method that is best on all other datasets, chosen for each dataset and for each target, is better than the
   paper's rule in the same sense: so choosing a method carries over to datasets that were not used;
3. it is not clearly worse than the models of 5-fold cross-validation, in both targets, at a quarter of their cost.

If several may, it is the hypothesis of the study (`HYPOTHESES`, in their order) if it is among them, and otherwise the
one with the lowest mean regret in test loss. If none may, the paper's rule stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from heldin.lab.bundles import COMPRESSED, FinishedRuns, read_records, read_store, write_records
from heldin.lab.curves import setting_of
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store
from heldin.rules import RiseAbove
from study.candidates import CANDIDATES, FALL, NEVER, PAPER, Candidate, Timer
from study.choice import Trial, trials
from study.evaluation import (
    Difference,
    LeftOut,
    Outcome,
    StudyRun,
    Summary,
    Target,
    Validation,
    difference,
    leave_one_dataset_out,
    other_seeds,
    outcomes_of,
    summarize,
    validation_outcomes,
)
from study.running import chosen_settings, recorded_trials, study_runs
from study.settings import SLOTS, Slot

FOLDER = Path(__file__).parent / "results"
TRIALS, RUNS = "trials", "records"
REMEDY = "Restore the file (git checkout), or run it again: python -m study run, then python -m study build --keep."
MAX_COST = 0.25  # of cross-validation

OF_HORIZON = tuple(each.name for each in CANDIDATES if isinstance(each, Timer) and each.of_horizon is not None)
"""Candidates that know the horizon. It was set from the best epoch of a trial, which no user knows."""

HYPOTHESES = tuple(Candidate(curve, RiseAbove(0.1, 3.0, 0.5), FALL) for curve in ("std_detached", "pooled_std", "std"))
"""The rise beyond the noise of the curve, on three re-scalings."""


def keep_records(store: Store, folder: Path = FOLDER) -> tuple[int, int]:
    """Add the finished trials and runs of a store to the bundled records. Return how many there are now."""
    tried = [trial.spec for slot in SLOTS for trial in recorded_trials(slot, store)]
    runs = study_runs(list(chosen_settings().values()))
    return _keep(store, tried, folder / TRIALS), _keep(store, runs, folder / RUNS)


def _keep(store: Store, specs: Sequence[RunSpec], folder: Path) -> int:
    known = read_records(folder, specs, remedy=REMEDY, suffix=COMPRESSED)
    missing = [spec for spec in specs if spec.id not in {record.id for record in known.records}]
    added = read_store(store, missing)
    runs = FinishedRuns([*known.records, *added.records], {**known.unit_seconds, **added.unit_seconds})
    write_records(folder, *runs, suffix=COMPRESSED)
    return len(runs.records)


def bundled_trials(slot: Slot, folder: Path = FOLDER) -> list[Trial]:
    """Return the trials of a slot from the bundled records."""

    def record_of(spec: RunSpec) -> RunRecord | None:
        found = read_records(folder / TRIALS, [spec], remedy=REMEDY, suffix=COMPRESSED)
        return found.records[0] if found.records else None

    return trials(slot, record_of)


def bundled_ids(folder: Path = FOLDER) -> set[str]:
    """Return the ids of the bundled runs of the settings."""
    specs = study_runs(list(chosen_settings().values()))
    return {record.id for record in read_records(folder / RUNS, specs, remedy=REMEDY, suffix=COMPRESSED).records}


@dataclass(frozen=True)
class Results:
    """The recorded runs of the study.

    Attributes:
        runs: The runs on all the data.
        folds: The runs that leave out one fold each, in their order, by setting and seed.
        slots: The names of the settings, by their id.
    """

    runs: Sequence[StudyRun]
    folds: Mapping[tuple[str, int], Sequence[RunRecord]]
    slots: Mapping[str, str]

    @classmethod
    def from_records(cls, records: Iterable[RunRecord], settings: Mapping[str, RunSpec]) -> Results:
        """Sort records into runs on all the data and folds; `settings` are those of the study, by slot."""
        runs: list[StudyRun] = []
        folds: dict[tuple[str, int], list[RunRecord]] = {}
        for record in sorted(records, key=lambda record: (record.spec.seed, record.spec.fold or 0)):
            if record.spec.fold is None:
                runs.append(StudyRun(record))
            else:
                folds.setdefault((setting_of(record.spec).id, record.spec.seed), []).append(record)
        order = {setting_of(spec).id: slot for slot, spec in settings.items()}
        runs.sort(key=lambda run: (list(order).index(run.setting), run.record.spec.seed))
        return cls(runs, folds, order)

    @classmethod
    def bundled(cls, folder: Path = FOLDER) -> Results:
        """Read the bundled records."""
        settings = chosen_settings()
        specs = study_runs(list(settings.values()))
        found = read_records(folder / RUNS, specs, remedy=REMEDY, suffix=COMPRESSED)
        return cls.from_records(found.records, settings)

    @cached_property
    def candidates(self) -> dict[str, list[Outcome]]:
        """The outcomes of every candidate, by its name."""
        return {method.name: outcomes_of(method, self.runs) for method in CANDIDATES}

    @cached_property
    def references(self) -> dict[str, list[Outcome]]:
        """The outcomes of what candidates are compared with, by name: those without any outcome are left out."""
        found = {
            NEVER.name: outcomes_of(NEVER, self.runs),
            **{kind.value: validation_outcomes(kind, self.runs, self.folds) for kind in Validation},
            "best epoch of other seeds": other_seeds(self.runs),
        }
        return {name: outcomes for name, outcomes in found.items() if outcomes}

    @cached_property
    def outcomes(self) -> dict[str, list[Outcome]]:
        """All of them."""
        return {**self.references, **self.candidates}

    def summary(self, name: str, target: Target) -> Summary:
        """Summarize a method for a target."""
        return summarize(self.outcomes[name], target)

    def compared(
        self, name: str, target: Target, other: str = PAPER.name, *, settings: Container[str] | None = None
    ) -> Difference | None:
        """Return the regret of a method minus that of another, on the runs that both have; None without any.

        With `settings`, only on the runs of these.
        """
        one, second = (
            [each for each in self.outcomes.get(method, ()) if settings is None or each.setting in settings]
            for method in (name, other)
        )
        shared = {outcome.run.record.id for outcome in one} & {outcome.run.record.id for outcome in second}
        return difference(one, second, target) if shared else None

    def chosen_by_loss(self, kind: Validation, settings: Container[str] | None = None) -> Difference | None:
        """Compare the test error with the paper's rule, if the epoch is that of the lowest validation loss."""
        found = validation_outcomes(kind, self.runs, self.folds, chosen_by=Target.LOSS)
        found = [each for each in found if settings is None or each.setting in settings]
        return difference(found, self.candidates[PAPER.name], Target.ERROR) if found else None

    def left_out(self, target: Target, *, without: Container[str] = ()) -> list[LeftOut]:
        """Return the candidate that is best on all other datasets, for each dataset."""
        among = {name: outcomes for name, outcomes in self.candidates.items() if name not in without}
        return leave_one_dataset_out(among, target)

    def chosen_on_others(self, target: Target, *, without: Container[str] = ()) -> list[Outcome]:
        """Return the outcomes, on each dataset, of the candidate that is best on all other datasets."""
        return [
            outcome
            for left_out in self.left_out(target, without=without)
            for outcome in self.candidates[left_out.method]
            if outcome.dataset == left_out.dataset
        ]

    def eligible(self) -> list[str]:
        """Return the candidates that may replace the paper's rule, by the first and the third condition."""
        return [name for name in self.candidates if name != PAPER.name and self._may_replace(name)]

    def _may_replace(self, name: str) -> bool:
        for target in Target:
            against_paper = self.compared(name, target)
            against_folds = self.compared(name, target, Validation.FOLDS.value)
            if against_paper is None or against_paper.high >= 0.0:
                return False
            if against_folds is None or against_folds.low > 0.0:
                return False
        cost, of_folds = (self.summary(each, Target.LOSS).cost for each in (name, Validation.FOLDS.value))
        return cost <= MAX_COST * of_folds

    def choice_carries_over(self, *, without: Container[str] = ()) -> dict[Target, Difference]:
        """Return how the method chosen on other datasets compares with the paper's rule: the second condition."""
        paper = self.candidates[PAPER.name]
        chosen = {target: self.chosen_on_others(target, without=without) for target in Target}
        return {target: difference(outcomes, paper, target) for target, outcomes in chosen.items()}

    def default(self) -> str:
        """Return the name of the default: by the three conditions, a candidate or the paper's rule."""
        eligible = self.eligible()
        if not eligible or any(found.high >= 0.0 for found in self.choice_carries_over().values()):
            return PAPER.name
        for hypothesis in HYPOTHESES:
            if hypothesis.name in eligible:
                return hypothesis.name
        return min(eligible, key=lambda name: self.summary(name, Target.LOSS).mean)
