"""Records of runs that were never trained."""

from heldin.lab.curves import groups
from heldin.lab.store import RunRecord


def record_of(spec, *, done=True, **curves):
    """A run with these curves, by name; None for a curve that was not recorded. The spec's signals are its signals."""
    curves = {name: curve for name, curve in curves.items() if curve is not None}
    lines = []
    for epoch in range(max(map(len, curves.values()), default=0)):
        line = {name: curve[epoch] for name, curve in curves.items()}
        signals = {name: line.pop(name) for name in spec.signals if name in line}
        lines.append({"epoch": epoch, **line, "signals": signals})
    return RunRecord(spec, tuple(lines), done)


def epoch_line(spec, epoch, **values):
    """A line of `epochs.jsonl` with all that a run of this spec records; `signals` are added to the others."""
    parts = ("train", "test") if spec.fold is None else ("train", "test", "val")
    signals = {**dict.fromkeys(spec.signals, 0.5), **values.pop("signals", {})}
    metrics = {f"{part}_{name}": 1.0 / (epoch + 1) for part in parts for name in ("loss", "error")}
    return {"epoch": epoch, **metrics, "parameter_norm": 1.0, **values, "signals": signals}


def group_of(*records):
    """The group of runs of one setting."""
    (group,) = groups(records)
    return group
