"""Data files: the folder they are in, the formats they come in, and downloads.

A download is written to a temporary file, which is renamed once its checksum is right, and removed otherwise. Existing
files are never overwritten.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from heldin.errors import DataError, missing_package
from heldin.lab.data.arrays import Arrays

VARIABLE = "HELDIN_DATA"
TIMEOUT = (10, 60)  # seconds to connect, and between two chunks


@dataclass(frozen=True)
class Download:
    """A file that can be downloaded."""

    path: str  # below the data folder
    md5: str
    urls: tuple[str, ...]  # tried in this order


@dataclass(frozen=True)
class DataFormat:
    """How the files of a dataset are found, read and checked."""

    read: Callable[[str, Path], Arrays]  # from the dataset's name and what `find` returned
    find: Callable[[Path], Path | None] = lambda root: None  # the file or folder in the data folder; None: missing
    verify: Callable[[Path], list[str]] = lambda path: []  # a sentence for each file with a wrong checksum
    downloads: tuple[Download, ...] = ()
    instructions: str = ""  # how to get the files by hand; ROOT stands for the data folder
    needs_files: bool = True  # False for a dataset in an installed package


def data_root(root: Path | str | None = None) -> Path:
    """The data folder: `root`, or the environment variable HELDIN_DATA, or the user's cache folder."""
    folder = expand_home(Path(root or os.environ.get(VARIABLE) or _pooch().os_cache("heldin")))
    if exists(folder) and not folder.is_dir():
        raise DataError(f"The data root should be a folder. Found the file {folder}. Pass another, or set {VARIABLE}.")
    return folder


def require_folder(root: Path | str | None, name: str) -> None:
    """Refuse a folder to download a dataset to that does not exist; the default one is created when needed."""
    folder = data_root(root)
    if (root or os.environ.get(VARIABLE)) and not exists(folder):
        raise DataError(
            f"The data folder should exist. Found no folder {folder}. Create it, or correct --data or {VARIABLE}. "
            f"`heldin data fetch {name} --data DIR` downloads the dataset to a folder that exists."
        )


def expand_home(path: Path) -> Path:
    """Replace `~` at the beginning by the home folder; unchanged if the user does not exist."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def exists(path: Path) -> bool:
    """Whether a file or folder exists; False for names that are not possible, such as very long ones."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def first_existing(root: Path, *names: str) -> Path | None:
    """The first of these files or folders below `root` that exists."""
    return next((root / name for name in names if exists(root / name)), None)


def download(file: Download, root: Path, *, instructions: str) -> Path:
    """Download one file below `root`, from the first URL that works, with a progress bar on a terminal."""
    pooch = _pooch()
    from requests.exceptions import RequestException  # a dependency of pooch

    target = root / file.path
    if target.exists():
        return target
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16, timeout=TIMEOUT)
    failures = []
    for url in file.urls:
        try:
            pooch.retrieve(url, f"md5:{file.md5}", fname=target.name, path=target.parent, downloader=downloader)
            return target
        except RequestException as error:
            failures.append(f"{url}: {_reason(error)}")
        except ValueError:  # what pooch raises for another checksum
            failures.append(f"{url}: not the expected file (its md5 is not {file.md5})")
        except OSError as error:  # RequestException is one, too
            raise DataError(f"{target} cannot be written: {error}. Choose another folder, or make room.") from error
    raise DataError(f"{target.name} could not be downloaded. {'; '.join(failures)}. By hand: {instructions}")


def md5_problems(path: Path, md5: str) -> list[str]:
    """A sentence if the md5 of the file is not `md5`, the official one."""
    if md5_of(path) == md5:
        return []
    return [f"{path} is not the official file: its md5 should be {md5}. Remove it and fetch it again."]


def md5_of(path: Path) -> str:
    """The md5 of a file, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _pooch() -> ModuleType:
    try:
        return importlib.import_module("pooch")
    except ImportError as error:
        raise missing_package("Data", "pooch", "lab") from error


def _reason(error: Exception) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, exceptions.Timeout):
        return "the server did not answer in time"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection"
    return f"the connection was interrupted ({type(error).__name__})"
