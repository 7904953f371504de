"""Model + batches -> gradients, leaving no trace.

The only place that runs a model. A `Probe` puts everything back as it found it: buffers, flags, `.grad`, hooks, every
random stream and what else model and loss hold, also when it raises half-way. Weights it does not write.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, BatchesError, HeldinWarning, NoSpreadError, require_choice
from heldin.probing.backward import gradient, num_values
from heldin.probing.batches import listed, moved
from heldin.probing.losses import LossFunction, SampleLosses, sample_losses_from, training_loss
from heldin.probing.randomness import own_randomness
from heldin.probing.reach import is_generator, is_module, within_reach
from heldin.probing.rescaling import pooled_std, weights
from heldin.probing.shots import Shot, backward_pass, backward_passes
from heldin.probing.stacking import can_be_stacked, shoot_stack
from heldin.probing.trace import plain_execution, refuse_lazy, untouched, versions, written_since
from heldin.types import RESCALINGS, Gradients

MODES = ("train", "eval")


class Probe:
    """Takes gradients of batches at a model's present weights.

    Args:
        model: any module with trainable parameters.
        loss_fn: the loss training uses: a module with a `reduction`, a function that takes `reduction=`, or a callable
            that returns one loss per sample. None where `sample_losses` is given.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are no (inputs, targets) pairs.
        mode: `"train"` (as the paper: dropout drops, BatchNorm uses the batch) or `"eval"`.
        autocast: leave an autocast region around the call in force; by default the probe runs in full precision.
        seed: of the randomness inside a measurement (dropout); the global streams are not touched.

    Example:
        >>> import torch
        >>> from heldin import Probe
        >>> batches = [(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 1))]
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> probe = Probe(model, lambda output, target: output.squeeze(1))
        >>> probe.gradients(batches, "none").matrix().tolist()
        [[0.5, 1.5]]
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        *,
        sample_losses: SampleLosses | None = None,
        mode: str = "train",
        autocast: bool = False,
        seed: int = 0,
    ) -> None:
        require_choice("mode", mode, MODES)
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"Parameter `model` should be a torch.nn.Module. Found {type(model).__name__}.")
        self.model = model
        self.loss_fn = loss_fn
        self.sample_losses = sample_losses
        self.mode = mode
        self.autocast = autocast
        self.seed = seed
        self._losses = sample_losses_from(loss_fn, sample_losses)  # refuses what cannot serve
        self._warned: set[str] = set()
        self.parameters()

    def first_time(self, text: str) -> bool:
        """Whether this was not asked before: for what is said once."""
        known = text in self._warned
        self._warned.add(text)
        return not known

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters:
            raise ArgumentError(
                f"The model should have trainable parameters. Found none in {type(self.model).__name__}: "
                "none at all (is it the loss? the model comes first), or all with requires_grad=False. "
                "Unfreeze the part that is trained."
            )
        return parameters

    @contextmanager
    def session(self, *, seed: int | None = None, mode: str | None = None) -> Iterator[set[torch.device]]:
        """Run the model at will: on leaving, everything is as it was. Gives the devices it lies on.

        Randomness inside follows from `seed` alone; `seed` and `mode` stand in for the probe's own, this time.
        """
        refuse_lazy(self.model)
        before = versions(self.model)
        devices = {parameter.device for parameter in self.parameters()}
        models = [thing for thing in (self.model, self.loss_fn, self.sample_losses) if isinstance(thing, nn.Module)]
        modules = dict.fromkeys(module for model in models for module in model.modules())
        found = within_reach([self.loss_fn, self.sample_losses, *modules])
        known = set(map(id, modules))
        beside = [thing for thing in found if is_module(thing) and id(thing) not in known]
        generators = [thing for thing in found if is_generator(thing)]
        with (
            own_randomness(self.seed if seed is None else seed, *generators),
            plain_execution(device_types={device.type for device in devices}, autocast=self.autocast),
            untouched(*models, mode=self.mode if mode is None else mode, beside=beside),
        ):
            self._losses = sample_losses_from(self.loss_fn, self.sample_losses)  # the loss as it is by now
            yield devices
        caveat = written_since(before, self.model)
        if caveat is not None and self.first_time(caveat):
            warnings.warn(f"{caveat} This is said once.", HeldinWarning, stacklevel=4)

    def losses(self, batch: Any, *, check: bool = True) -> Tensor:
        """The losses of the samples of a batch (m,), inside a session; unchecked inside a vmap."""
        if check:
            return self._losses(self.model, batch)
        return sample_losses_from(self.loss_fn, self.sample_losses, check=False)(self.model, batch)

    def training_loss(self, batch: Any) -> Tensor:
        """The number training differentiates, inside a session: the user's own loss, with its own reduction."""
        return training_loss(self.loss_fn, self.sample_losses, self.model, batch)

    def listed(self, batches: Iterable[Any], name: str = "batches") -> list[Any]:
        """Batches handed over as they are to be used; a loader is read through a twin."""
        if isinstance(batches, (list, tuple)):
            return list(batches)
        with own_randomness(None, batches):  # a loader may draw when it is iterated
            return listed(batches, name)

    def gradients(
        self,
        batches: Iterable[Any],
        rescale: str = "std",
        *,
        against: Iterable[Any] | None = None,
        pool: Iterable[Any] | None = None,
    ) -> Gradients:
        """The gradient of each batch's re-scaled mean loss, one row a batch.

        Args:
            batches: exactly the batches to use.
            rescale: one of `"std"`, `"std_detached"`, `"minmax"`, `"none"`, `"grad_std"`, `"pooled_std"`.
            against: a second set of batches, whose rows follow those of the first.
            pool: for `"pooled_std"`: the batches whose single losses give the standard deviation; `batches` if None.
        """
        return self.collect(batches, [rescale], against=against, pool=pool)[rescale]

    def collect(
        self,
        batches: Iterable[Any],
        rescalings: Iterable[str],
        *,
        against: Iterable[Any] | None = None,
        pool: Iterable[Any] | None = None,
        comparing: Iterable[str] | None = None,
        seed: int | None = None,
        at_least: int = 1,
        as_products: bool = False,
    ) -> dict[str, Gradients]:
        """`gradients` for several re-scalings at once: one forward pass a batch, and no backward pass twice.

        The batches of `against` are taken with the re-scalings in `comparing`, by default with all. `seed` stands in
        for the probe's own, this time; fewer than `at_least` usable batches are refused. With `as_products` all batches
        go through the model at once where they can, and gradients of weights are left as the products they are.
        """
        wanted = list(dict.fromkeys(rescalings))
        compared = wanted if comparing is None else [rescale for rescale in wanted if rescale in {*comparing}]
        for rescale in wanted:
            require_choice("rescale", rescale, RESCALINGS)
        parameters = self.parameters()
        first = self.listed(batches)
        second = [] if against is None else self.listed(against, "against")
        pooled = None if pool is None else self.listed(pool, "pool")
        if len(first) < at_least or (against is not None and not second):
            raise _too_few(wanted[0], len(first), len(second), at_least, [])
        together = as_products and not self.autocast and can_be_stacked(self.model, self.loss_fn, [*first, *second])
        sets = [(first, wanted), (second, compared)]
        with self.session(seed=seed) as devices:
            shots = self._shoot_all(sets, parameters, devices, together=together)
            if "pooled_std" in wanted:
                singles = [shot.losses for shot in shots[: len(first)]]
                if pooled is not None:
                    singles = [self.losses(moved(batch, devices)).detach().cpu() for batch in pooled]
                spread = pooled_std(singles)
                for shot in shots:
                    shot.divide("pooled_std", spread, "all the pooled losses are equal")
        of_first = shots[: len(first)]
        return {
            name: self._assemble(name, shots if name in compared else of_first, len(first), parameters, at_least)
            for name in wanted
        }

    def _shoot_all(
        self,
        sets: list[tuple[list[Any], list[str]]],
        parameters: list[nn.Parameter],
        devices: set[torch.device],
        *,
        together: bool,
    ) -> list[Shot]:
        """The batches of each set, with its re-scalings: in one pass, or else one by one."""
        sets = [(batches, wanted) for batches, wanted in sets if batches]
        if together:
            with suppress(Exception):  # whatever it is: one by one it is met again, and said of the batch it belongs to
                return [
                    shot
                    for batches, wanted in sets
                    for shot in shoot_stack(self.model, self.losses, moved(batches, devices), wanted, parameters)
                ]
        return [self._shoot(moved(batch, devices), wanted, parameters) for batches, wanted in sets for batch in batches]

    def _shoot(self, batch: Any, wanted: list[str], parameters: list[nn.Parameter]) -> Shot:
        """One forward pass, and a backward pass for each way of re-scaling that needs its own."""
        losses = self.losses(batch)
        shot = Shot(losses.detach().cpu().double())
        usable = shot.judge(wanted, torch.finfo(losses.dtype).eps)
        passes = backward_passes(usable)
        for name in passes:
            keep_graph = name != passes[-1]
            shot.rows[name] = gradient(losses, weights(name, shot.losses), parameters, keep_graph=keep_graph)
        shot.divide_all(usable)
        return shot

    def _assemble(
        self, name: str, shots: list[Shot], split: int, parameters: list[nn.Parameter], at_least: int
    ) -> Gradients:
        """The usable rows of one re-scaling; the others are named once and left out."""
        problems = [shot.problems[name] for shot in shots if name in shot.problems]
        sets = shots[:split], shots[split:]
        first, second = ([shot for shot in part if name not in shot.problems] for part in sets)
        if len(first) < at_least or (len(shots) > split and not second):
            num, others = (sum("sample" not in shot.problems.get(name, "") for shot in part) for part in sets)
            flat = num >= at_least and (len(shots) == split or others > 0)  # by their sizes they would do
            raise _too_few(name, len(first), len(second), at_least, problems, flat)
        if problems and self.first_time(name):
            skipped = f"{len(problems)} of {len(shots)} batches skipped with rescale={name!r}"
            warnings.warn(f"{skipped}: {problems[0]}. This is said once.", HeldinWarning, stacklevel=5)
        kept = [*first, *second]
        return Gradients(
            rows=tuple(shot.rows[backward_pass(name)] for shot in kept),
            scales=tuple(shot.scales.get(name, 1.0) for shot in kept),
            sizes=tuple(map(num_values, parameters)),
            split=len(first),
            num_samples=tuple(shot.losses.numel() for shot in kept),
        )


def _too_few(name: str, first: int, second: int, least: int, problems: list[str], flat: bool = False) -> BatchesError:
    """The error for fewer usable batches than needed; `flat`: there would be enough, did their losses differ."""
    others = " and at least 1 to compare them with" if first >= least else ""
    skipped = f"; {len(problems)} skipped, one because {problems[0]}" if problems else ""
    if flat:
        remedy = "Is the loss a constant? Or does the model fit these batches exactly? Then nothing is left to measure."
    elif any("single sample" in problem for problem in problems):
        remedy = (
            'For batches of one sample use GradientDisparity(rescale="pooled_std") with 20 batches, as the paper does; '
            "otherwise use larger batches."
        )
    else:
        remedy = "Give more batches: a smaller batch size makes more of the same data."
    return (NoSpreadError if flat else BatchesError)(
        f"At least {least} batches{others} should be usable with rescale={name!r}. "
        f"Found {first + second}{skipped}. {remedy}"
    )
