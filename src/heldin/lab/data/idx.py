"""Reading idx files, MNIST's own format: a magic number, the sizes as big-endian integers, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array

BYTES = 0x08  # the code of the type; MNIST has no other


def unpacked(path: Path) -> bytes:
    """The content of a file, gzipped or not."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Replace the file.") from error


def read_idx(path: Path, *, num_dimensions: int) -> Array:
    """The array of an idx file, gzipped or not.

    Raises:
        DataError: If the file is no idx file of bytes with so many dimensions, or is shorter or longer than it says.
    """
    content = unpacked(path)
    start = 4 + 4 * num_dimensions
    if len(content) < start or content[:4] != bytes([0, 0, BYTES, num_dimensions]):
        raise DataError(
            f"{path} should be an idx file of bytes with {num_dimensions} dimensions. "
            f"Found a file that begins with {content[:4].hex(' ') or 'nothing'}. Replace the file."
        )
    shape = struct.unpack(f">{num_dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} should hold {math.prod(shape)} bytes of data, as its head says. Found {len(content) - start}. "
            "Replace the file."
        )
    return numpy.frombuffer(content, dtype=numpy.uint8, offset=start).reshape(shape)
