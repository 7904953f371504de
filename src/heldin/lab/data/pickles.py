"""Unpickling NumPy arrays of bytes, plain values, and nothing else.

A pickle is a programme, and may call whatever it can name. Here it can name the three things that an array is
rebuilt from, and gets stand-ins for them: not even NumPy's own code runs on what a stranger wrote.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array


class PickledArray:
    """Stands in for an array while it is rebuilt: `array` is what came of it."""

    array: Array

    def __init__(self, *_: object) -> None:
        """Takes what NumPy pickles of an empty array: its class, shape and type. All of it follows once more."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, content = state
        if not isinstance(kind, PickledType):
            raise pickle.UnpicklingError("it holds an array without a type")
        data = content.encode("latin1") if isinstance(content, str) else content  # Python 2 knew strings alone
        if len(data) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of {shape} bytes has {len(data)} of them")
        self.array = numpy.frombuffer(data, dtype=numpy.uint8).reshape(shape, order="F" if columns_first else "C")


class PickledType:
    """Stands in for the type of an array, of which there is one."""

    def __init__(self, code: str, *_: object) -> None:
        if code != "u1":
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}, not of bytes")

    def __setstate__(self, state: object) -> None:
        """Bytes have no order, no fields, no alignment."""


STAND_INS = {
    ("numpy", "ndarray"): PickledArray,  # named as an argument
    ("numpy", "dtype"): PickledType,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,  # NumPy 1
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,  # NumPy 2
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler for which nothing but the stand-ins can be imported."""

    def find_class(self, module: str, name: str) -> type:
        """The stand-in for what an array is rebuilt from."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return STAND_INS[module, name]


def read_pickle(content: bytes, where: str) -> Any:
    """The value of a pickle, Python 2's included, made of plain values and arrays of bytes (as `PickledArray`).

    Raises:
        DataError: If it asks for anything else, or cannot be read. Nothing it asked for has been looked up then.
    """
    try:
        return ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a broken pickle raises nearly anything
        raise DataError(
            f"{where} should be a pickle of plain values and arrays of bytes. It cannot be read: {error}. "
            "Replace the file by the official one."
        ) from error
