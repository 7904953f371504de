"""The folder that data files are looked for in, and downloaded to."""

from __future__ import annotations

import os
from pathlib import Path

from heldin.errors import DataError, MissingExtraError

VARIABLE = "HELDIN_DATA"


def data_root(root: Path | str | None = None) -> Path:
    """The data folder: the argument, else what HELDIN_DATA says, else the user's cache folder.

    Raises:
        DataError: If there is something at that place, and it is not a folder.
    """
    chosen = root or os.environ.get(VARIABLE) or _cache()
    folder = Path(chosen).expanduser()
    if folder.exists() and not folder.is_dir():
        raise DataError(f"The data root should be a folder. Found the file {folder}. Pass another, or set {VARIABLE}.")
    return folder


def _cache() -> Path:
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError('Data needs pooch. Install it: pip install "heldin[lab]".') from error
    return Path(pooch.os_cache("heldin"))
