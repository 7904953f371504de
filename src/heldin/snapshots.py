"""WeightSnapshot: the weights of one epoch, kept in memory or in a file, and put back on request.

A checkpoint may refer to weights in the file, and a run resumed from it needs them even if better ones have been kept
since. So that file is not overwritten: it becomes `<file>.before`, and stays until better weights come after the next
checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from heldin.errors import KEPT, ArgumentError, require_choice, warn

Keep = Literal["lowest", "before_rise"]
Weights: TypeAlias = dict[str, Any]  # the state dict of a model


class WeightSnapshot:
    """The weights of one epoch at a time.

    Args:
        keep: which weights are wanted, or None for none.
        keep_in: the file to keep them in; None keeps them in memory, on the CPU.
    """

    def __init__(self, keep: Keep | None, keep_in: str | Path | None) -> None:
        if keep is not None:
            require_choice("keep", keep, ("lowest", "before_rise"))
        elif keep_in is not None:
            raise ArgumentError(
                f'Found `keep_in = {str(keep_in)!r}` but `keep = None`. Say which weights to keep: keep="lowest".'
            )
        self.keep = keep
        self.keep_in = None if keep_in is None else Path(keep_in)
        self.reset()

    def reset(self) -> None:
        """Forget the weights. An existing file is not removed."""
        self.epoch: int | None = None
        self._weights: Weights | None = None
        self._in_checkpoint = False  # whether a state that was saved refers to the file

    def forget(self) -> None:
        """Forget the weights, but not that a checkpoint may refer to the file: it is not overwritten."""
        self.epoch, self._weights = None, None

    def take(self, model: nn.Module, epoch: int, *, write: bool = True) -> None:
        """Keep the weights of this epoch in place of the present ones. With `write=False` another rank writes the file.

        All ranks have the same weights and the same file: if each of them wrote it, one would take it from another.
        """
        if self.keep_in is None:
            self._weights = _copy_of(model)
        else:
            if write:
                self.keep_in.parent.mkdir(parents=True, exist_ok=True)
                partial = self.keep_in.with_name(self.keep_in.name + ".part")
                torch.save({"epoch": epoch, "weights": _copy_of(model)}, partial)
                if self._in_checkpoint and self.keep_in.exists():
                    os.replace(self.keep_in, _previous(self.keep_in))
                os.replace(partial, self.keep_in)
            self._weights, self._in_checkpoint = None, False
        self.epoch = epoch

    def restore(self, model: nn.Module) -> int:
        """Load the kept weights into `model` and return their epoch."""
        if self.keep is None:
            raise ArgumentError(f'No weights are kept: keep=None. Create EarlyStopping with keep="lowest". {KEPT}')
        if self.epoch is None:
            raise ArgumentError(
                f"No weights are kept yet: with keep={self.keep!r} there was no measurement whose weights should be "
                "kept, or they are no longer in the file. Call step(loader) first."
            )
        weights = self._weights
        if weights is None:
            content = self._read_file()
            if content["epoch"] != self.epoch:
                raise self._other_run(content["epoch"])
            weights = content["weights"]
        if not _fit(weights, model):  # else load_state_dict would change a part of the model before it raises
            raise ArgumentError(
                f"The weights of epoch {self.epoch} should fit the model. Found other names or shapes: they belong to "
                "another model. Load the state that was saved with this model."
            )
        model.load_state_dict(weights)
        return self.epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the weights if they are in memory."""
        self._in_checkpoint = self.epoch is not None and self._weights is None
        return {"keep": self.keep, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state: Mapping[str, Any], model: nn.Module) -> None:
        """Continue from `state_dict()`, if the same weights are wanted."""
        self.reset()
        if state["epoch"] is None:
            return
        if self.keep != state["keep"]:
            warn(
                f"The state keeps weights for keep={state['keep']!r}. Found `keep = {self.keep!r}`, so they are not "
                f"loaded. Create EarlyStopping with keep={state['keep']!r} to have them."
            )
            return
        self.epoch, self._weights = state["epoch"], state["weights"]
        if self._weights is None:
            self._find_weights(model)

    def _find_weights(self, model: nn.Module) -> None:
        """Find the weights of `epoch` in the file, or read them from the previous one; else warn and keep none."""
        content = self._read_file()
        self._in_checkpoint = content["epoch"] == self.epoch
        if self._in_checkpoint:
            return
        previous = _previous(self.keep_in)
        if previous.exists() and (earlier := _load(previous))["epoch"] == self.epoch:
            self._weights = earlier["weights"]
            return
        if not _fit(content["weights"], model):
            raise self._other_run(content["epoch"])
        warn(
            f"The file {self.keep_in} should hold the weights of epoch {self.epoch}. Found those of epoch "
            f"{content['epoch']}, kept since this state was saved. No weights are kept until better ones come, which "
            "overwrite these. To return to an older checkpoint, copy the file with each checkpoint."
        )
        self.reset()

    def _read_file(self) -> dict[str, Any]:
        if self.keep_in is None or not self.keep_in.exists():
            raise ArgumentError(
                f"The weights of epoch {self.epoch} should be in a file. Found none"
                + (": keep_in=None" if self.keep_in is None else f" at {self.keep_in}")
                + ". Pass keep_in= the file they were kept in."
            )
        return _load(self.keep_in)

    def _other_run(self, epoch: int) -> ArgumentError:
        return ArgumentError(
            f"The file {self.keep_in} should hold the weights of epoch {self.epoch}. Found those of epoch {epoch}: "
            "another run wrote to it. Give each run a separate file."
        )


def _copy_of(model: nn.Module) -> Weights:
    return {
        name: value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
        for name, value in model.state_dict().items()
    }


def _fit(weights: Weights, model: nn.Module) -> bool:
    """Return whether the model has weights of the same names and shapes; lazy ones, without a shape so far, may fit."""
    own = model.state_dict()
    return weights.keys() == own.keys() and all(
        is_lazy(own[name]) or own[name].shape == value.shape
        for name, value in weights.items()
        if isinstance(value, Tensor) and isinstance(own[name], Tensor)
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # damaged, or written by something else
        content = error
    if not isinstance(content, dict) or not isinstance(content.get("weights"), dict) or "epoch" not in content:
        raise ArgumentError(
            f"The file {path} should hold weights that EarlyStopping kept. Found another content, or a damaged file. "
            "Pass keep_in= the file they were kept in."
        )
    return content


def _previous(path: Path | None) -> Path:
    assert path is not None
    return path.with_name(path.name + ".before")
