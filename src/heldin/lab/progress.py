"""How far runs are: one bar a run and one in all on a terminal, plain lines elsewhere.

Looks at the store alone, so it does not matter who computes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

EVERY_SECONDS = 0.5
SHOWN = 8  # bars of single runs at a time


class Progress:
    """Shows how far runs are while they are worked on.

    Args:
        quiet: show nothing.
        console: where to; the standard error by default.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or Console(stderr=True)

    @contextmanager
    def over(self, specs: Sequence[RunSpec], store: Store) -> Iterator[None]:
        """Look at these runs until the block ends."""
        if self.quiet:
            yield
            return
        ended = threading.Event()
        watch = self._bars if self.console.is_terminal else self._lines
        thread = threading.Thread(target=watch, args=(list(specs), store, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _lines(self, specs: list[RunSpec], store: Store, ended: threading.Event) -> None:
        done = {spec.id for spec in specs if store.folder(spec).done}
        self.console.print(f"{counted(len(specs))}, {len(done)} of them done", highlight=False)
        last = False
        while not last:
            last = ended.wait(EVERY_SECONDS)
            for spec in specs:
                if spec.id not in done and store.folder(spec).done:
                    done.add(spec.id)
                    text = f"[{len(done)}/{len(specs)}] {spec.id} {spec.title}"
                    self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _bars(self, specs: list[RunSpec], store: Store, ended: threading.Event) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=self.console, transient=False) as bars:
            whole = bars.add_task("all epochs", total=sum(spec.epochs for spec in specs))
            tasks: dict[str, TaskID] = {}
            last = False
            while not last:
                last = ended.wait(EVERY_SECONDS)
                trained = 0
                for spec in specs:
                    folder = store.folder(spec)
                    epochs = spec.epochs if folder.done else folder.num_epochs
                    trained += epochs
                    busy = 0 < epochs < spec.epochs
                    if busy and spec.id not in tasks and len(tasks) < SHOWN:
                        tasks[spec.id] = bars.add_task(
                            f"[dim]{spec.id[:6]}[/] {escape(spec.title[:40])}", total=spec.epochs
                        )
                    if spec.id in tasks:
                        bars.update(tasks[spec.id], completed=epochs)
                        if not busy:
                            bars.remove_task(tasks.pop(spec.id))
                bars.update(whole, completed=trained)


def counted(num: int) -> str:
    """1 run, 2 runs."""
    return "1 run" if num == 1 else f"{num} runs"
