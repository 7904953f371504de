"""Interruptions at any line, as by Ctrl-C."""

from __future__ import annotations

import sys


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line in heldin, `contextlib` and `random`; counts the lines if n is None."""

    def __init__(self, number=None):
        self.number, self.lines = number, 0

    def __enter__(self):
        self.previous = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.previous)

    def trace(self, frame, event, _):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("heldin", "contextlib", "random"):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                raise KeyboardInterrupt
        return self.trace
