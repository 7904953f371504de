"""What the figures of one run on clean labels share: disparity beside the generalization gap."""

from __future__ import annotations

from heldin.lab.reproducing import Built, Runs
from paper.correlating import correlations
from paper.making import curves, group_of, numbered, together
from paper.settings import DISPARITY, Setting


def beside_gap(runs: Runs, setting: Setting) -> Built:
    """Curves of loss and of error, and the correlations of disparity with the generalization gap."""
    group = group_of(runs, setting)
    if group is None or not group.full:
        return Built()
    drawn, numbers = [], {}
    for part in ("loss", "error"):
        metrics = tuple(f"{which}_{part}" for which in ("train", "test", "generalization"))
        drawn.append(curves(part, group.full, DISPARITY, metrics))
        numbers[f"rho.generalization_{part}"] = correlations([group.full], DISPARITY, f"generalization_{part}")
    return together(*drawn, numbered(numbers))
