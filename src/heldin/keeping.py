"""Keeping a model's weights aside, in memory or in a file, and putting them back.

A checkpoint may speak of weights in the file, and a run resumed from it needs them, also where better ones have come
since. So the file is not written over then: it becomes `<file>.before`, and stays until better ones come after the next
checkpoint.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, HeldinWarning, require_choice

WHICH = ("lowest", "before_rise")


class Keeper:
    """Holds the weights of one epoch at a time: in memory, or else in the file.

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
        self._spoken_of = False  # whether a state handed out says that they are in the file

    def consider(self, model: nn.Module, epoch: int, worth_keeping: bool) -> None:
        """Take the weights of this epoch in place of those held, if they are worth it."""
        if self.keep is None or not worth_keeping:
            return
        weights = {name: _copied(value) for name, value in model.state_dict().items()}
        if self.keep_in is None:
            self._weights = weights
        else:
            aside = _before(self.keep_in) if self._spoken_of else None
            _write(self.keep_in, {"epoch": epoch, "weights": weights}, aside)
            self._weights, self._spoken_of = None, False
        self.epoch = epoch

    def restore(self, model: nn.Module) -> int:
        """Put the weights held into `model`, and return their epoch."""
        if self.keep is None:
            raise ArgumentError('No weights are kept: keep=None. Create EarlyStopping with keep="lowest".')
        if self.epoch is None:
            raise ArgumentError(
                f"No weights are kept yet: since keep={self.keep!r} was set there was no measurement whose weights it "
                "asks for, or they are no longer in the file. Call step(loader) first."
            )
        model.load_state_dict(self._held())
        return self.epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch held, and its weights where they are in memory."""
        self._spoken_of = self.epoch is not None and self._weights is None
        return {"keep": self.keep, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Hold what `state` says, where it was kept for the same purpose."""
        self.forget()
        if self.keep is None or self.keep != state["keep"] or state["epoch"] is None:
            return
        self.epoch, self._weights = state["epoch"], state["weights"]
        if self._weights is None and not self._found():
            self._go_without(model)

    def _found(self) -> bool:
        """Whether the weights of `epoch` are in the file, or in the one before, from where they are read at once."""
        for path in [] if self.keep_in is None else [self.keep_in, _before(self.keep_in)]:
            if path.exists() and (content := _content(path))["epoch"] == self.epoch:
                self._spoken_of = path == self.keep_in
                self._weights = None if self._spoken_of else content["weights"]
                return True
        return False

    def _go_without(self, model: nn.Module) -> None:
        """Hold nothing, and say so, where the file has weights of this model, but of another epoch."""
        found = self._in_file()
        if _shapes(found["weights"]) != _shapes(model.state_dict()):
            raise ArgumentError(self._another(found["epoch"]))
        warnings.warn(
            f"The file {self.keep_in} should hold the weights of epoch {self.epoch}. Found those of epoch "
            f"{found['epoch']}, kept since this state was saved. None are held until better ones come, which are "
            "written over these. To go back to a checkpoint before the latest, copy the file with each.",
            HeldinWarning,
            stacklevel=4,
        )
        self.forget()

    def _held(self) -> dict[str, Any]:
        if self._weights is not None:
            return self._weights
        found = self._in_file()
        if found["epoch"] != self.epoch:
            raise ArgumentError(self._another(found["epoch"]))
        weights: dict[str, Any] = found["weights"]
        return weights

    def _in_file(self) -> dict[str, Any]:
        """What is in the file, whatever epoch it is of."""
        if self.keep_in is None or not self.keep_in.exists():
            raise ArgumentError(
                f"The weights of epoch {self.epoch} should be in a file. Found none"
                + (": keep_in=None" if self.keep_in is None else f" at {self.keep_in}")
                + ". Pass keep_in= the file they were kept in."
            )
        return _content(self.keep_in)

    def _another(self, epoch: int) -> str:
        return (
            f"The file {self.keep_in} should hold the weights of epoch {self.epoch}. Found those of epoch {epoch}: "
            "another run wrote to it. Give each run a file of its own."
        )


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def _shapes(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: value.shape if isinstance(value, Tensor) else None for name, value in weights.items()}


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def _before(path: Path) -> Path:
    return path.with_name(path.name + ".before")


def _write(path: Path, content: dict[str, Any], aside: Path | None) -> None:
    """All of it or nothing: a file half written never takes the place of a good one, which is put `aside` if asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    torch.save(content, beside)
    if aside is not None and path.exists():
        os.replace(path, aside)
    os.replace(beside, path)
