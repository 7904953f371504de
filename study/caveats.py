"""How often caveats are right: of the stops that have one, how many are bad; of the bad ones, how many have it.

A stop is bad if its test error is more than a point above that of the best epoch of the run, or, for the other target,
its test loss more than 5 % above the lowest. The loss of the network before training stands for that of a constant
prediction. Learning rates of these runs do not change, and their predictions are not recorded, so two caveats never
occur here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from heldin.caveats import find_caveats
from heldin.lab.store import RunRecord
from heldin.rules import first_after_fall, replay
from heldin.types import Caveat, CaveatKind, Reading
from study.candidates import Candidate
from study.curves import CURVES, NUM_BATCHES, Point, training_losses
from study.evaluation import StudyRun, Target

MAX_POINTS_LOST = 1.0  # of test error
MAX_LOSS_RATIO = 1.05  # to the lowest test loss


@dataclass(frozen=True)
class CaveatScore:
    """How often one caveat is right, for one target.

    Attributes:
        kind: The caveat; None: at least one of them.
        target: What makes a stop bad.
        num_stops: The number of stops.
        num_bad: How many of them are bad.
        num_flagged: How many have the caveat.
        num_flagged_bad: How many have it and are bad.
    """

    kind: CaveatKind | None
    target: Target
    num_stops: int
    num_bad: int
    num_flagged: int
    num_flagged_bad: int

    @property
    def precision(self) -> float:
        """Of the stops with the caveat, the share that is bad; NaN if there are none."""
        return self.num_flagged_bad / self.num_flagged if self.num_flagged else math.nan

    @property
    def recall(self) -> float:
        """Of the bad stops, the share that has the caveat; NaN if there are none."""
        return self.num_flagged_bad / self.num_bad if self.num_bad else math.nan

    @property
    def bad_otherwise(self) -> float:
        """Of the stops without the caveat, the share that is bad; NaN if there are none."""
        rest = self.num_stops - self.num_flagged
        return (self.num_bad - self.num_flagged_bad) / rest if rest else math.nan


def caveat_scores(method: Candidate, runs: Iterable[StudyRun]) -> list[CaveatScore]:
    """Return the scores of all caveats, for both targets, over the runs in which the method stops."""
    stops = [(run, found) for run in runs if (found := stop_of(method, run)) is not None]
    scores = []
    for target in Target:
        bad = [is_bad(run, target, point) for run, (point, _) in stops]
        for kind in (None, *CaveatKind):
            flagged = [any(kind in (None, caveat.kind) for caveat in caveats) for _, (_, caveats) in stops]
            both = sum(one and other for one, other in zip(bad, flagged, strict=True))
            scores.append(CaveatScore(kind, target, len(stops), sum(bad), sum(flagged), both))
    return scores


def stop_of(method: Candidate, run: StudyRun) -> tuple[Point, tuple[Caveat, ...]] | None:
    """Return the point whose weights a method uses, and the caveats of its stop; None if it does not stop."""
    points = run.early if method.early else run.epochs
    chosen = method.stop(points)
    begin = 0 if method.start is None else first_after_fall(training_losses(points), method.start)
    if chosen is None or begin is None:
        return None
    curve = CURVES[method.curve]
    readings = readings_of(run.record, points, method.curve)
    decision = replay(method.rule, [each.values[method.curve] for each in readings[begin:]], direction=curve.direction)
    assert decision.epoch is not None
    upto = readings[: begin + decision.epoch + 1]
    before = None if decision.before is None else begin + decision.before
    decision = replace(decision, epoch=upto[-1].epoch, before=before)
    return points[chosen], find_caveats(decision, upto, signal=method.curve, direction=curve.direction, begin=begin)


def readings_of(record: RunRecord, points: Sequence[Point], curve: str) -> list[Reading]:
    """Return what `EarlyStopping` would have recorded at these points."""
    num_samples = NUM_BATCHES * record.spec.batch_size
    return [
        Reading(
            number,
            {curve: point.value(curve)},
            NUM_BATCHES,
            loss,
            num_samples,
            constant_loss=float(point.first["loss"]),
        )
        for number, (point, loss) in enumerate(zip(points, training_losses(points), strict=True))
    ]


def is_bad(run: StudyRun, target: Target, point: Point) -> bool:
    """Return whether a stop is clearly worse than the best epoch of its run; a value that is not finite is."""
    best, value = target.of(run.best[target]), target.of(point)
    limit = best + MAX_POINTS_LOST if target is Target.ERROR else best * MAX_LOSS_RATIO
    return not value <= limit
