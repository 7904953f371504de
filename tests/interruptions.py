"""Interruptions at any line, as by Ctrl-C."""

from __future__ import annotations

import sys


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line in heldin, and in `contextlib` and `random` on its behalf.

    Counts the lines if n is None. Lines of `contextlib` on behalf of torch do not count: an interruption there leaves a
    suspended generator of torch behind, and closing it later ends a level of vmap that another call has opened.
    """

    def __init__(self, number=None):
        self.number, self.lines = number, 0

    def __enter__(self):
        self.previous = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.previous)

    def trace(self, frame, event, _):
        if not _is_of_heldin(frame):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                raise KeyboardInterrupt
        return self.trace


def _is_of_heldin(frame):
    while frame is not None and _package(frame) in ("contextlib", "random"):
        frame = frame.f_back
    return frame is not None and _package(frame) == "heldin"


def _package(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]
