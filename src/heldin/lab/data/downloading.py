"""Downloads: whole and right, or not at all.

A file is written beside its place under another name, and moved there once its checksum is right. What already
stands at the place is never overwritten.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from heldin.errors import DataError, MissingExtraError
from heldin.lab.data.dataset import Remote

TIMEOUT = (10, 60)  # seconds to connect, and between two pieces
PIECE = 1 << 16


def download(remote: Remote, root: Path, *, by_hand: str) -> Path:
    """Download one file below `root`, from the first place that has it, with a progress bar on a terminal.

    Raises:
        DataError: If no place gives the right file, or it cannot be written. Nothing is left behind.
    """
    try:
        import pooch
        from requests.exceptions import RequestException
    except ImportError as error:
        raise MissingExtraError('Downloading needs pooch. Install it: pip install "heldin[lab]".') from error
    target = root / remote.path
    if target.exists():
        return target
    fetcher = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=PIECE, timeout=TIMEOUT)
    failures = []
    for url in remote.urls:
        try:
            pooch.retrieve(
                url, known_hash=f"md5:{remote.md5}", fname=target.name, path=target.parent, downloader=fetcher
            )
            return target
        except RequestException as error:
            failures.append(f"{url}: {_reason(error)}")
        except ValueError:  # pooch's word for another checksum
            failures.append(f"{url}: not the file it should be (its md5 is not {remote.md5})")
        except OSError as error:  # RequestException is one, too
            raise DataError(f"{target} cannot be written: {error}. Choose another folder, or make room.") from error
    raise DataError(f"{target.name} could not be downloaded. {'; '.join(failures)}. By hand: {by_hand}")


def md5_of(path: Path) -> str:
    """The md5 of a file, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    from requests.exceptions import ConnectionError as NoConnection
    from requests.exceptions import HTTPError, Timeout

    if isinstance(error, HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, Timeout):
        return "the server did not answer in time"
    if isinstance(error, NoConnection):
        return "no connection"
    return f"the connection broke off ({type(error).__name__})"
