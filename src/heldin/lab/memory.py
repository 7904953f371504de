"""The memory of this machine: what cannot fit is refused before it is read or built."""

from __future__ import annotations

import os

from heldin.errors import HeldinError

UNKNOWN = 2**40  # bytes, for a system that does not say how much memory it has


def total_memory() -> int:
    """The bytes of memory of this machine, whether used or not."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return UNKNOWN


def require_memory(num_bytes: int, what: str, *, remedy: str, error: type[HeldinError]) -> None:
    """Raise `error` if `what` takes more bytes than this machine has."""
    if num_bytes > (memory := total_memory()):
        raise error(
            f"{what} should fit into the memory of this machine, {format_bytes(memory)}. "
            f"Found {format_bytes(num_bytes)}. {remedy}"
        )


def format_bytes(num: float) -> str:
    """A number of bytes for people: 12 kB, 3.4 GB."""
    if num > 10**21:
        return "more than 1,000,000,000 TB"
    for unit in ("bytes", "kB", "MB", "GB"):
        if num < 999.5:
            return f"{num:.3g} {unit}"
        num /= 1000
    return f"{num:.3g} TB" if num < 999.5 else f"{num:,.0f} TB"
