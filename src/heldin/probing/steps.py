"""Hypothetical steps: the result of one optimizer step on a batch, from the present weights.

Nothing of the user's is written. A step is taken by a copy of the optimizer, with a copy of its state, on copies of the
parameters; the model runs on those copies. Each step has its own session, so that all of them start from the same
weights, buffers and optimizer state. Hooks on the optimizer's `step`, and schedulers that count its steps, belong to
training and are not called.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from heldin.errors import ArgumentError, BatchesError, LossError, UnmeasurableError, require_integer
from heldin.probing.batches import Batch, as_list, require_pair, to_device
from heldin.probing.isolation import derive_seed, without_hooks
from heldin.probing.losses import ignored_index
from heldin.probing.outputs import collect_outputs, outputs
from heldin.probing.probe import Probe, WithParameters, derivatives

NEEDS_CLASSES = "Use another signal if the targets are not integer classes."


def stepped_outputs(
    probe: Probe,
    batches: Iterable[Batch],
    optimizer: Optimizer | None,
    *,
    num_inputs: int = 1000,
    seed: int | None = None,
) -> Tensor:
    """Return the outputs after one step of the optimizer on each batch alone -> (s, n, ...) on the CPU.

    A step is taken in the probe's mode, on the loss as training reduces it; the outputs are those for the first
    `num_inputs` samples of all batches, in evaluation mode. The optimizer is the one used in training; it is copied.
    """
    require_integer("num_inputs", num_inputs, at_least=1, remedy="The authors use 1000.")
    checked = _checked(probe, optimizer)
    given = _at_least_one(batches)
    base = probe.seed if seed is None else seed
    rows = []
    for index, batch in enumerate(given):
        with probe.session(seed=derive_seed(base, "step", index)) as devices:
            trial = _TrialStep(probe, checked)
            trial.step(to_device(batch, devices))
            trial.parts.eval()
            rows.append(trial.run(partial(collect_outputs, probe, given, devices, num_inputs), trial.own))
    return torch.stack(rows)  # (s, n, ...)


def random_label_step(
    probe: Probe, batches: Iterable[Batch], optimizer: Optimizer | None, *, seed: int | None = None
) -> tuple[float, float]:
    """Return the first batch's mean loss under uniformly random labels, before and after one step on it."""
    checked = _checked(probe, optimizer)
    batch = _at_least_one(batches)[0]
    require_pair(batch, UnmeasurableError, NEEDS_CLASSES)
    base = probe.seed if seed is None else seed
    generator = torch.Generator().manual_seed(derive_seed(base, "labels"))
    output, ignored = outputs(probe, [batch], seed=seed), ignored_index(probe.loss.loss_fn)
    relabelled = _with_random_labels(batch, output, generator, ignored)
    with probe.session(seed=derive_seed(base, "random label step")) as devices:
        trial, on_device = _TrialStep(probe, checked), to_device(relabelled, devices)
        before = trial.step(on_device)
        after = trial.run(lambda: probe.training_loss(on_device).detach(), trial.own)
    return before, float(after)


class _TrialStep(WithParameters):
    """The model and its loss on copies of their parameters, and a copy of the optimizer that moves these copies."""

    def __init__(self, probe: Probe, optimizer: Optimizer) -> None:
        held = (probe.model, *probe.loss.parts)
        super().__init__(*(module for module in held if isinstance(module, nn.Module)))
        self.probe = probe
        named = dict(self.named_parameters(remove_duplicate=False))
        memo: dict[int, Any] = {}  # one for all copies: a parameter has one copy, under all its names
        self.own: dict[str, Tensor] = {name: copy.deepcopy(parameter, memo) for name, parameter in named.items()}
        self.optimizer = _copy_optimizer(optimizer, memo)
        stepped = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        self.moving = [p for p in dict.fromkeys(self.own.values()) if id(p) in stepped and p.requires_grad]

    def step(self, batch: Batch) -> float:
        """Take one step of the optimizer on the batch; return its mean loss before the step."""
        values: list[float] = []

        def closure() -> Any:  # a tensor, as in a training loop
            loss = self.run(partial(self._differentiate, batch), self.own)
            values.append(float(loss))
            return loss

        registries = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
        with without_hooks(*registries):
            if _needs_closure(self.optimizer):
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()
        return values[0]

    @torch.enable_grad()
    def _differentiate(self, batch: Batch) -> Tensor:
        """The training loss; its gradient is stored in `.grad` of the copies, as `backward` would."""
        loss = self.probe.training_loss(batch)
        gradients = derivatives(loss, self.moving)
        if all(gradient is None for gradient in gradients):
            raise LossError(
                "The loss should depend on the parameters of the optimizer. Found one in which none of them takes "
                "part. Check that the optimizer holds the trained parameters of this model."
            )
        for parameter, gradient in zip(self.moving, gradients, strict=True):
            parameter.grad = None if gradient is None else _own_memory(parameter, gradient)
        return loss.detach()


def _own_memory(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A copy of the gradient: autograd may return one tensor for two parameters, or expand a single number."""
    if gradient.layout is not torch.strided:
        return gradient.clone()
    return torch.empty_like(parameter).copy_(gradient.detach())


def _copy_optimizer(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    """A copy of the optimizer over the parameters in `memo`, without hooks and schedulers."""
    try:
        own = copy.deepcopy(optimizer, memo)
        for name, value in vars(optimizer).items():  # torch copies state and groups only; L-BFGS needs more
            if name not in vars(own):
                vars(own)[name] = copy.deepcopy(value, memo)
    except Exception as error:
        raise UnmeasurableError(
            f"The optimizer should be copyable, so that a hypothetical step can be taken. Found a "
            f"{type(optimizer).__name__} that is not ({error}). Use a signal that takes no steps."
        ) from error
    vars(own).pop("step", None)  # a scheduler's wrapper, which counts the steps of the original
    for name, value in vars(own).items():
        if name.endswith("_hooks"):
            value.clear()
    return own


def _needs_closure(optimizer: Optimizer) -> bool:
    """True if `step` cannot be called without a closure, as for L-BFGS."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(optimizer.step).parameters.values()
    return any(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def _checked(probe: Probe, optimizer: Optimizer | None) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        found = "none" if optimizer is None else f"a {type(optimizer).__name__}"
        raise UnmeasurableError(
            f"This signal takes hypothetical steps with the optimizer of training. Found {found}. Pass optimizer=..."
        )
    trained = {id(parameter) for parameter in probe.parameters()}
    if not any(id(parameter) in trained for group in optimizer.param_groups for parameter in group["params"]):
        raise ArgumentError(
            f"The optimizer should hold parameters of the model. Found a {type(optimizer).__name__} without any of the "
            f"{len(trained)} trainable ones of {type(probe.model).__name__}. Pass the one built from "
            "model.parameters(), after the model was last replaced."
        )
    return optimizer


def _at_least_one(batches: Iterable[Batch]) -> list[Batch]:
    given = as_list(batches)
    if not given:
        raise BatchesError("A hypothetical step needs at least 1 batch. Found none. Check the dataset.")
    return given


def _with_random_labels(batch: Batch, output: Tensor, generator: torch.Generator, ignored: int | None) -> Batch:
    """The pair with uniformly random classes as targets; `ignored` and negative targets (padding) do not change."""
    inputs, targets = batch
    if not isinstance(targets, Tensor) or targets.dtype is torch.bool or targets.is_floating_point():
        kind = f"of type {targets.dtype}" if isinstance(targets, Tensor) else f"that are a {type(targets).__name__}"
        raise UnmeasurableError(
            f"Random labels need batches (inputs, integer classes). Found targets {kind}. {NEEDS_CLASSES}"
        )
    drawn = torch.randint(_num_classes(output, targets), targets.shape, generator=generator, device="cpu")
    kept = targets < 0 if ignored is None else (targets < 0) | (targets == ignored)
    labels = torch.where(kept, targets, drawn.to(targets))
    return type(batch)([inputs, labels]) if type(batch) in (tuple, list) else (inputs, labels)


def _num_classes(output: Tensor, targets: Tensor) -> int:
    """For outputs (m, C, ...), as cross entropy takes them, (m, ..., C), or one number per sample for two classes."""
    if output.shape[1:].numel() == 1:
        return 2
    if output.shape[:1] + output.shape[2:] == targets.shape:
        return output.shape[1]
    if output.shape[:-1] == targets.shape:
        return output.shape[-1]
    raise UnmeasurableError(
        f"Random labels need one integer class per sample. Found targets of shape {tuple(targets.shape)} for outputs "
        f"of shape {tuple(output.shape)}. {NEEDS_CLASSES}"
    )
