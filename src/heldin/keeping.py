"""Keeping a model's weights aside, in memory or in a file, and putting them back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, require_choice

WHICH = ("lowest", "before_rise")


class Keeper:
    """Holds the weights of one epoch at a time.

    Args:
        keep: which weights the owner wants kept, or None for none.
        keep_in: the file to keep them in; None keeps them in memory, on the CPU.
    """

    def __init__(self, keep: str | None, keep_in: str | Path | None) -> None:
        if keep is not None:
            require_choice("keep", keep, WHICH)
        elif keep_in is not None:
            raise ArgumentError(
                f'Found `keep_in = {str(keep_in)!r}` but `keep = None`. Say which weights to keep: keep="lowest".'
            )
        self.keep = keep
        self.keep_in = None if keep_in is None else Path(keep_in)
        self.forget()

    def forget(self) -> None:
        """Hold nothing. A file already written is left where it is."""
        self.epoch: int | None = None
        self._weights: dict[str, Any] | None = None

    def consider(self, model: nn.Module, epoch: int, worth_keeping: bool) -> None:
        """Take the weights of this epoch in place of those held, if they are worth it."""
        if self.keep is None or not worth_keeping:
            return
        weights = {name: _copied(value) for name, value in model.state_dict().items()}
        if self.keep_in is None:
            self._weights = weights
        else:
            _write(self.keep_in, {"epoch": epoch, "weights": weights})
        self.epoch = epoch

    def restore(self, model: nn.Module) -> int:
        """Put the weights held into `model`, and return their epoch."""
        if self.keep is None:
            raise ArgumentError('No weights are kept: keep=None. Create EarlyStopping with keep="lowest".')
        if self.epoch is None:
            raise ArgumentError(
                f"No weights are kept yet: since keep={self.keep!r} was set there was no measurement whose weights it "
                "asks for. Call step(loader) first."
            )
        model.load_state_dict(self._held())
        return self.epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch held, and its weights where they are in memory."""
        return {"keep": self.keep, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what `state` says, where it was kept for the same purpose."""
        self.forget()
        if self.keep is None or self.keep != state["keep"] or state["epoch"] is None:
            return
        self.epoch, self._weights = state["epoch"], state["weights"]
        if self._weights is None or self.keep_in is not None:
            self._held()

    def _held(self) -> dict[str, Any]:
        if self._weights is not None:
            return self._weights
        if self.keep_in is None or not self.keep_in.exists():
            raise ArgumentError(
                f"The weights of epoch {self.epoch} should be in a file. Found none"
                + (": keep_in=None" if self.keep_in is None else f" at {self.keep_in}")
                + ". Pass keep_in= the file they were kept in."
            )
        saved = torch.load(self.keep_in, map_location="cpu", weights_only=True)
        if saved["epoch"] != self.epoch:
            raise ArgumentError(
                f"The file {self.keep_in} should hold the weights of epoch {self.epoch}. Found those of epoch "
                f"{saved['epoch']}: another run wrote to it. Give each run a file of its own."
            )
        weights: dict[str, Any] = saved["weights"]
        return weights


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def _write(path: Path, content: dict[str, Any]) -> None:
    """All of it or nothing: a file half written never takes the place of a good one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    torch.save(content, beside)
    os.replace(beside, path)
