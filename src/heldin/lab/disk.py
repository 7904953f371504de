"""Writing files: at once or not at all, and a disk that does not take them said in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from heldin.errors import StoreError


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside `path`, then put it in its place at once."""
    beside = path.with_name(path.name + ".new")
    with told(path):
        try:
            write(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """A disk that is full, a folder that cannot be written: said so that one knows what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. What was recorded before is safe. "
            "Make room, or choose another folder with --store, and run the same command again."
        ) from error
    except RuntimeError as error:  # torch.save's way to say it
        if "PytorchStreamWriter" not in str(error) and "unexpected pos" not in str(error):
            raise
        raise StoreError(f"{path} cannot be written: {error}. Make room, and run the same command again.") from error
