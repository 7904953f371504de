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


def group_of(*records):
    """The group of runs of one setting."""
    (group,) = groups(records)
    return group
