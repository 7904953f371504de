"""Model + batches -> gradients, leaving no trace.

The only place that runs a model. A `Probe` puts everything back as it found it: weights, buffers, flags, `.grad`,
hooks and every random stream, also when it raises half-way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, BatchesError, HeldinWarning, LossError, require_choice
from heldin.probing.losses import (
    DIFFERENTIATED,
    DIVIDED,
    LossFunction,
    SampleLosses,
    sample_losses_from,
    unusable,
)
from heldin.probing.randomness import own_randomness
from heldin.probing.trace import plain_execution, untouched
from heldin.types import RESCALINGS, Gradients

MODES = ("train", "eval")
Row = tuple[Tensor | None, ...]


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
        >>> [row[0].tolist() for row in probe.gradients(batches, "none").rows]
        [[[0.5, 1.5]]]
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
        self._losses = sample_losses_from(loss_fn, sample_losses)
        self._warned: set[str] = set()
        self.parameters()

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters:
            raise ArgumentError(
                f"The model should have trainable parameters. Found none in {type(self.model).__name__}: "
                "none at all, or all with requires_grad=False. Unfreeze the part that is trained."
            )
        return parameters

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
        seed: int | None = None,
        at_least: int = 1,
    ) -> dict[str, Gradients]:
        """`gradients` for several re-scalings at once: one forward pass a batch, and no backward pass twice.

        `seed` stands in for the probe's own, this time; fewer than `at_least` usable batches are refused.
        """
        wanted = list(dict.fromkeys(rescalings))
        for rescale in wanted:
            require_choice("rescale", rescale, RESCALINGS)
        parameters = self.parameters()
        with own_randomness(None, batches, against, pool):  # a loader may draw when it is iterated
            first = _listed(batches, "batches")
            second = [] if against is None else _listed(against, "against")
            pooled = None if pool is None else _listed(pool, "pool")
        models = [module for module in (self.model, self.loss_fn) if isinstance(module, nn.Module)]
        devices = {parameter.device for parameter in parameters}
        with (
            own_randomness(self.seed if seed is None else seed, *(m for model in models for m in model.modules())),
            untouched(*models, mode=self.mode),
            plain_execution(device_types={device.type for device in devices}, autocast=self.autocast),
        ):
            shots = [self._shoot(batch, wanted, parameters, devices) for batch in [*first, *second]]
            if "pooled_std" in wanted:
                losses = [shot["losses"] for shot in shots[: len(first)]]
                if pooled is not None:
                    losses = self._losses_of(pooled, devices)
                _divide_by_pooled_std(shots, torch.cat(losses))
        return {name: self._assemble(name, shots, len(first), parameters, at_least) for name in wanted}

    def _shoot(
        self, batch: Any, wanted: list[str], parameters: list[nn.Parameter], devices: set[torch.device]
    ) -> dict[str, Any]:
        """One forward pass, and a backward pass for each way of re-scaling that needs its own.

        Gives, for each name wanted, the row and its scale, or in their place the reason why there is none.
        """
        losses = self._losses(self.model, _moved(batch, devices))
        problems = {name: unusable(losses, name) for name in wanted}
        targets = {name: DIFFERENTIATED[name] for name in wanted if name in DIFFERENTIATED and not problems[name]}
        if any(name in DIVIDED for name in wanted):
            targets["plain"] = torch.mean
        rows: dict[str, Row] = {}
        for left, (name, value) in zip(range(len(targets) - 1, -1, -1), targets.items(), strict=True):
            rows[name] = _gradient(value(losses), parameters, keep_graph=left > 0)
        shot: dict[str, Any] = {"losses": losses.detach().double()}
        for name in wanted:
            row = rows.get(name if name in DIFFERENTIATED else "plain")
            scale = 1.0 if name in DIFFERENTIATED else _scale(name, shot["losses"], row)
            problem = problems[name] or ("its gradient has no spread" if scale is None else None)
            shot[name] = problem or (row, scale)
        return shot

    def _losses_of(self, batches: list[Any], devices: set[torch.device]) -> list[Tensor]:
        return [self._losses(self.model, _moved(batch, devices)).detach().double() for batch in batches]

    def _assemble(
        self, name: str, shots: list[dict[str, Any]], split: int, parameters: list[nn.Parameter], at_least: int
    ) -> Gradients:
        """The usable rows of one re-scaling; the others are named once and left out."""
        usable = [not isinstance(shot[name], str) for shot in shots]
        problems = [shot[name] for shot, good in zip(shots, usable, strict=True) if not good]
        first, second = sum(usable[:split]), sum(usable[split:])
        if first < at_least or (len(shots) > split and second == 0):
            raise BatchesError(_too_few(name, first, second, at_least, problems))
        if problems and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"{len(problems)} of {len(shots)} batches skipped with rescale={name!r}: {problems[0]}. "
                "This is said once.",
                HeldinWarning,
                stacklevel=5,
            )
        kept = [shot[name] for shot, good in zip(shots, usable, strict=True) if good]
        return Gradients(
            rows=tuple(row for row, _ in kept),
            scales=tuple(scale for _, scale in kept),
            sizes=tuple(parameter.numel() for parameter in parameters),
            split=first,
        )


def _gradient(value: Tensor, parameters: list[nn.Parameter], *, keep_graph: bool) -> Row:
    row = torch.autograd.grad(value, parameters, retain_graph=keep_graph, allow_unused=True)
    if all(part is None for part in row):
        raise LossError(
            "The loss should depend on the model's parameters. Found one in which no trainable parameter takes part. "
            "Check that the loss is computed from this model's output."
        )
    return tuple(part if part is None or part.layout is torch.strided else part.to_dense() for part in row)


def _scale(name: str, losses: Tensor, row: Row | None) -> float | None:
    """What the plain gradient is multiplied with, or None where that is undefined."""
    if name == "std_detached":
        return 1.0 / float(losses.std()) if losses.numel() > 1 else 1.0
    if name == "grad_std":
        spread = _std_of_components([part for part in row or () if part is not None])
        return 1.0 / spread if spread > 0.0 else None
    return 1.0  # "none"; "pooled_std" is divided once all losses are known


def _std_of_components(parts: list[Tensor]) -> float:
    # PAPER: "the standard deviation of the gradients within batch S" is read as that of the components of its gradient.
    count = sum(part.numel() for part in parts)
    if count < 2:
        return 0.0
    total = sum(float(part.sum(dtype=torch.float64)) for part in parts)
    total_sq = sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
    return math.sqrt(max(total_sq - total * total / count, 0.0) / (count - 1))


def _divide_by_pooled_std(shots: list[dict[str, Any]], losses: Tensor) -> None:
    # PAPER: the MRNet code takes np.std, so ddof is 0 here; it also takes these losses in whatever mode the model was
    # left in, we in the probe's own.
    spread = float(losses.std(correction=0))
    for shot in shots:
        row, _ = shot["pooled_std"]
        shot["pooled_std"] = (row, 1.0 / spread) if spread > 0.0 else "all the pooled losses are equal"


def _too_few(name: str, first: int, second: int, at_least: int, problems: list[str]) -> str:
    """The message for fewer usable batches than needed."""
    others = " and at least 1 to compare them with" if first >= at_least else ""
    skipped = f"; {len(problems)} skipped, one because {problems[0]}" if problems else ""
    if any("single sample" in problem for problem in problems):
        remedy = (
            'For batches of one sample use GradientDisparity(rescale="pooled_std") with 20 batches, as the paper does; '
            "otherwise use larger batches."
        )
    else:
        remedy = "Give more batches: a smaller batch size makes more of the same data."
    return (
        f"At least {at_least} batches{others} should be usable with rescale={name!r}. "
        f"Found {first + second}{skipped}. {remedy}"
    )


def _listed(batches: Iterable[Any], name: str) -> list[Any]:
    if isinstance(batches, (Tensor, dict, str)) or not isinstance(batches, Iterable):
        raise BatchesError(
            f"Parameter `{name}` should be an iterable of batches. Found a {type(batches).__name__}. "
            "Write [(x, y), ...], or list(itertools.islice(loader, 5))."
        )
    return list(batches)


def _moved(batch: Any, devices: set[torch.device]) -> Any:
    """The batch where the model is; as it is where the model lies on several devices."""
    if len(devices) != 1:
        return batch
    (device,) = devices
    if isinstance(batch, Tensor):
        return batch if batch.device == device else batch.to(device)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return type(batch)({key: _moved(value, devices) for key, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        parts = [_moved(part, devices) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
