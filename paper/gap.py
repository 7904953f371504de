"""What the figures of one run on clean labels share: disparity beside the generalization gap."""

from __future__ import annotations

from heldin.lab.figures import CurvesDisplay
from heldin.lab.reproducing import Built, Runs
from paper.making import correlations, group_of
from paper.settings import DISPARITY, Setting


def beside_gap(runs: Runs, setting: Setting) -> Built:
    """Curves of loss and of error, and the correlations of disparity with the generalization gap."""
    group = group_of(runs, setting)
    if group is None or not group.full:
        return Built()
    names = {
        part: tuple(f"{which}_{part}" for which in ("train", "test", "generalization")) for part in ("loss", "error")
    }
    figures = {part: CurvesDisplay(group.full, DISPARITY, metrics) for part, metrics in names.items()}
    numbers = {
        f"rho.generalization_{part}": correlations([group], DISPARITY, f"generalization_{part}") for part in names
    }
    return Built(figures=figures, numbers={key: value for key, value in numbers.items() if value})
