"""Repeats of a ratio: timing, summary and printing, for all benchmarks."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def seconds(work: Callable[[], object]) -> float:
    """The wall-clock time of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of `work`, in which other load on the machine counts little."""
    start = time.process_time()
    work()
    return time.process_time() - start


def summarize(values: Sequence[float]) -> dict[str, Any]:
    """The median of repeats, their quartiles and their number."""
    lower, median, upper = (round(float(value), 4) for value in np.percentile(values, [25, 50, 75]))
    return {"median": median, "quartiles": [lower, upper], "num_repeats": len(values)}


def verdict(median: float, bar: float | None) -> str:
    """Compare a ratio with its bar."""
    return "no bar" if bar is None else "ok" if median <= bar else "over"


def format_ratio(row: dict[str, Any]) -> str:
    """The end of a printed row: quartiles, repeats, bar, verdict."""
    lower, upper = row["quartiles"]
    bar = "" if row["bar"] is None else f"{row['bar']:.2f}"
    return f"[{lower:.3f}, {upper:.3f}]  n = {row['num_repeats']:<3} bar {bar:<5} {row['verdict']}"
