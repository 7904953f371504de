"""Runs a program of this folder in a process of its rank."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch


def run(name: str, arguments: tuple[Any, ...], environment: dict[str, str], log: Path) -> None:
    """Call `main` of the program, with these environment variables; write what it prints to `log`."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    with log.open("w") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            importlib.import_module(name).main(*arguments)
        except BaseException:
            traceback.print_exc()
            file.flush()
            sys.exit(1)
