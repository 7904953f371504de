"""Watching a model while it trains: which batches, which signals, one reading at a time.

A `Watch` draws batches of its own from the training data and reads signals from them; it remembers what signals that
compare readings ask it to. It decides nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.errors import (
    ArgumentError,
    BatchesError,
    HeldinWarning,
    NoSpreadError,
    NotFiniteError,
    require_choice,
    require_integer,
)
from heldin.measuring import read
from heldin.needs import BatchGradients, Outputs, RandomLabelStep, SteppedOutputs
from heldin.offering import Offered
from heldin.probing import Probe, draw, whole
from heldin.probing.losses import LossFunction, SampleLosses
from heldin.probing.randomness import seed_for
from heldin.serving import Source
from heldin.signals import Memory, Signal, labelled
from heldin.types import Reading


class Watch:
    """Draws batches and reads signals. The arguments are those of `EarlyStopping`."""

    _more_batches: ClassVar[str] = (
        "Use a smaller batch size, here if not in training: "
        "stopper.step(DataLoader(dataset, batch_size=len(dataset) // 5))."
    )

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        *,
        signal: Sequence[Signal | str] | Signal | str,
        batches: int,
        probes: str,
        seed: int,
        sample_losses: SampleLosses | None,
        mode: str,
        autocast: bool,
        pool: int,
        optimizer: Optimizer | None,
    ) -> None:
        require_integer("batches", batches, at_least=2, remedy="The paper uses batches=5.")
        require_choice("probes", probes, ("fresh", "fixed"))
        require_integer("pool", pool, at_least=2, remedy="The paper pools 40 losses.")
        require_integer("seed", seed, at_least=0, remedy="Any other seed gives other batches.")
        self.signals = labelled(signal)
        self._check_optimizer(optimizer)
        self.batches = batches
        self.probes = probes
        self.seed = seed
        self.pool = pool
        self.optimizer = optimizer
        self.memory: dict[str, Memory] = {}
        self.offered = Offered()
        self.drawn: dict[str, Any] | None = None  # how the batches of the latest reading were drawn
        self._probe = Probe(model, loss_fn, sample_losses=sample_losses, mode=mode, autocast=autocast)
        self._warned: set[str] = set()

    def read(
        self, loader: Iterable[Any], epoch: int, *, against: Iterable[Any] | None = None, first: bool = True
    ) -> Reading:
        """Read every signal once. What is drawn follows from the seed and the epoch alone.

        Losses that are not finite, or all equal where their spread is needed, are an error at the `first` reading,
        where they speak of broken data or a broken model. Later they speak of a training that diverged, or has fitted
        its data exactly, and signals that cannot do with them are read as NaN.
        """
        drawing = epoch if self.probes == "fresh" else 0
        needs = [signal.needs for signal in self.signals.values()]
        pooling = any(isinstance(need, BatchGradients) and need.rescale == "pooled_std" for need in needs)
        wanted = max(self.batches, self.pool) if pooling else self.batches
        drawn = draw(loader, wanted, seed=seed_for(self.seed, "draw", drawing))
        batches = drawn[: self.batches]
        self._check_number(len(batches))
        others = None
        if against is not None:
            others = draw(against, self.batches, seed=seed_for(self.seed, "against", drawing))
        source = Source(
            batches,
            against=others,
            pool=drawn if pooling else None,
            optimizer=self.optimizer,
            samples=partial(self._samples, loader),
            outputs=self._offered_outputs(loader),
            seed=seed_for(self.seed, "probe", drawing),
        )
        try:
            values, remembered = read(self._probe, self.signals, source, self.memory)
        except (NotFiniteError, NoSpreadError):
            if first:
                raise
            values, remembered = self._read_each(source, epoch)
        self.memory = {**self.memory, **remembered}
        self.offered.fresh = False
        self.drawn = self._drawing()
        return Reading(epoch, values, len(batches))

    def _read_each(self, source: Source, epoch: int) -> tuple[dict[str, float | None], dict[str, Memory]]:
        """Signals one by one, so that one that cannot be read, which is a NaN, does not take the others with it."""
        values: dict[str, float | None] = {}
        remembered: dict[str, Memory] = {}
        for label, signal in self.signals.items():
            try:
                found, kept = read(self._probe, {label: signal}, source, self.memory)
            except NotFiniteError as error:
                self._warn("not finite", f"Recorded as NaN at epoch {epoch}: {error}")
                found, kept = {label: math.nan}, {}
            except NoSpreadError:
                self._warn(
                    "no spread",
                    f"Recorded as NaN at epoch {epoch}: in too many batches all losses are equal, usually since the "
                    "network fits its data exactly.",
                )
                found, kept = {label: math.nan}, {}
            values |= found
            remembered |= kept
        return values, remembered

    def _check_optimizer(self, optimizer: object) -> None:
        """Refuse now what would come up at the first reading."""
        stepping = [
            label for label, s in self.signals.items() if isinstance(s.needs, (SteppedOutputs, RandomLabelStep))
        ]
        if stepping and optimizer is None:
            raise ArgumentError(
                f"The signal {stepping[0]!r} takes hypothetical steps with the optimizer of training. Found none. "
                "Pass optimizer=..."
            )
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ArgumentError(
                f"Parameter `optimizer` should be a torch.optim.Optimizer, the one that trains. Found {optimizer!r}."
            )

    def offer(self, indices: Any, outputs: Tensor) -> None:
        """Take outputs of the training pass, where some signal asks for outputs."""
        if any(isinstance(signal.needs, Outputs) for signal in self.signals.values()):
            self.offered.take(indices, outputs)

    def forget(self) -> None:
        """Forget what signals remember, what training offered and how batches were drawn."""
        self.memory = {}
        self.offered = Offered()
        self.drawn = None

    def state_dict(self) -> dict[str, Any]:
        """What signals remember, what training offered and how batches were drawn: plain values and tensors."""
        return {
            "memory": self.memory,
            "offered": None if self.offered.kept is None else self.offered.kept.clone(),
            "fresh": self.offered.fresh,
            "drawn": self.drawn,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self.drawn = state.get("drawn")
        if self.drawn is not None and self.drawn != self._drawing():
            self._warn(
                "other batches",
                f"The readings loaded were made with {_written(self.drawn)}, those to come will be with "
                f"{_written(self._drawing())}. Their levels may differ, and the rule see a rise where none is.",
            )
        self.memory = dict(state["memory"])
        self.offered.kept = None if state["offered"] is None else state["offered"].clone()
        self.offered.fresh = state["fresh"]

    def _drawing(self) -> dict[str, Any]:
        """What the level of readings depends on; the seed where it chooses the batches of all of them."""
        chosen = {"batches": self.batches, "probes": self.probes}
        return {**chosen, "seed": self.seed} if self.probes == "fixed" else chosen

    def _offered_outputs(self, loader: Iterable[Any]) -> Tensor | None:
        if self.offered.kept is not None and not self.offered.fresh:
            self._warn(
                "nothing offered",
                "No outputs were offered by observe() since the last reading: they are taken from an evaluation pass.",
            )
            return None
        return self.offered.outputs(loader)

    def _samples(self, loader: Iterable[Any], num_samples: int | None) -> Iterable[Any]:
        return whole(loader, seed=seed_for(self.seed, "whole"), num_samples=num_samples, memory=self.memory)

    def _check_number(self, found: int) -> None:
        if found < 2:
            raise BatchesError(
                f"At least 2 batches are needed to compare gradients. Found {found} in the loader. {self._more_batches}"
            )
        if found < self.batches:
            self._warn(
                "few batches",
                f"Measuring on {found} batches, all there are; {self.batches} were asked for. "
                "(A last batch of less than half the size of the others does not count.)",
            )

    def _warn(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(f"{message} This is said once.", HeldinWarning, stacklevel=5)


def _written(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
