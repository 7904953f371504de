"""Hypothetical steps: what the user's own optimizer would make of a batch, from here.

Nothing of the user's is written. A step is taken by a copy of the optimizer, with a copy of its state, on copies of the
parameters; the model runs on those copies for as long as it takes. Each step is a session of its own, so that all of
them start from the same weights, buffers and optimizer state. The hooks on the optimizer's `step`, and the schedulers
that count its steps, belong to training and are not told.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from heldin.errors import ArgumentError, BatchesError, LossError, UnservedError, require_integer
from heldin.probing.backward import derivatives
from heldin.probing.batches import moved
from heldin.probing.outputs import collected, outputs, require_pair
from heldin.probing.probe import Probe
from heldin.probing.randomness import seed_for

Result = TypeVar("Result")


def stepped_outputs(
    probe: Probe,
    batches: Iterable[Any],
    optimizer: Optimizer | None,
    *,
    num_inputs: int = 1000,
    seed: int | None = None,
) -> Tensor:
    """The outputs after one step of the optimizer on each batch alone -> (s, n, ...) on the CPU.

    A step is taken in the probe's mode, on the loss as training reduces it; the outputs are those for the first
    `num_inputs` samples of all the batches, in evaluation mode.

    Args:
        probe: holds the model and its loss.
        batches: exactly the batches to use.
        optimizer: the one training uses; it is copied, never written.
        num_inputs: for how many samples, at most.
        seed: stands in for the probe's own.
    """
    require_integer("num_inputs", num_inputs, at_least=1, remedy="1000 is what the authors use.")
    checked = _checked(probe, optimizer)
    listed = _some(probe, batches)
    base = probe.seed if seed is None else seed
    rows = []
    for index, batch in enumerate(listed):
        with probe.session(seed=seed_for(base, "step", index)) as devices:
            twin = _Twin(probe, checked)
            twin.step(moved(batch, devices))
            twin.parts.eval()
            rows.append(twin.run(partial(collected, probe, listed, devices, num_inputs)))
    return torch.stack(rows)  # (s, n, ...)


def random_label_step(
    probe: Probe, batches: Iterable[Any], optimizer: Optimizer | None, *, seed: int | None = None
) -> tuple[float, float]:
    """The first batch's mean loss under uniformly random labels, before and after one step of the optimizer on it.

    Args:
        probe: holds the model and its loss.
        batches: of which the first is used: inputs, and integer classes.
        optimizer: the one training uses; it is copied, never written.
        seed: stands in for the probe's own; the labels follow from it.
    """
    checked = _checked(probe, optimizer)
    batch = _some(probe, batches)[0]
    require_pair(batch)
    base = probe.seed if seed is None else seed
    generator = torch.Generator().manual_seed(seed_for(base, "labels"))
    relabelled = _relabelled(batch, outputs(probe, [batch], seed=seed), generator)
    with probe.session(seed=seed_for(base, "random label step")) as devices:
        twin, on_device = _Twin(probe, checked), moved(relabelled, devices)
        before = twin.step(on_device)
        with torch.no_grad():
            after = twin.run(partial(_loss_without_graph, probe, on_device))
    return before, float(after)


def _loss_without_graph(probe: Probe, batch: Any) -> Tensor:
    with torch.enable_grad():  # the checks of a loss look for its graph
        return probe.training_loss(batch).detach()


class _Twin(nn.Module):
    """The model (and its loss) on parameters of their own, and the optimizer that moves these. Inside a session."""

    def __init__(self, probe: Probe, optimizer: Optimizer) -> None:
        super().__init__()
        self.probe = probe
        modules = (probe.model, probe.loss_fn, probe.sample_losses)
        self.parts = nn.ModuleList(module for module in modules if isinstance(module, nn.Module))
        named = dict(self.named_parameters(remove_duplicate=False))
        memo: dict[int, Any] = {}  # one for all copies: a parameter has one copy, under all its names
        self.own: dict[str, Tensor] = {name: copy.deepcopy(parameter, memo) for name, parameter in named.items()}
        self.optimizer = _copied(optimizer, memo)
        stepped = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        self.moving = [p for p in dict.fromkeys(self.own.values()) if id(p) in stepped and p.requires_grad]

    def forward(self, function: Callable[[], Result]) -> Result:
        return function()

    def run(self, function: Callable[[], Result]) -> Result:
        """What `function` returns when it finds the model on the copies."""
        result: Result = torch.func.functional_call(self, self.own, (function,))
        return result

    def step(self, batch: Any) -> float:
        """One step of the optimizer on the batch; its mean loss before."""
        values: list[float] = []

        def closure() -> Any:  # a tensor, as that of a training loop
            loss = self.run(partial(self._differentiate, batch))
            values.append(float(loss))
            return loss

        with _no_global_step_hooks():
            if _takes_a_closure(self.optimizer):
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()
        return values[0]

    @torch.enable_grad()
    def _differentiate(self, batch: Any) -> Tensor:
        """Training's loss; its gradient is left in `.grad` of the copies, as `backward` would leave it."""
        loss = self.probe.training_loss(batch)
        gradients = derivatives(loss, self.moving)
        if all(gradient is None for gradient in gradients):
            raise LossError(
                "The loss should depend on the parameters the optimizer steps. Found one in which none of them takes "
                "part. Check that the optimizer holds the trained parameters of this model."
            )
        for parameter, gradient in zip(self.moving, gradients, strict=True):
            parameter.grad = None if gradient is None else _laid_out_as(parameter, gradient)
        return loss.detach()


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A gradient with memory of its own: autograd may hand one tensor to two parameters, or expand a single number."""
    if gradient.layout is not torch.strided:
        return gradient.clone()
    return torch.empty_like(parameter).copy_(gradient.detach())


def _copied(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    """A copy of the optimizer over the parameters in `memo`, without hooks, and unknown to schedulers."""
    try:
        own = copy.deepcopy(optimizer, memo)
        for name, value in vars(optimizer).items():  # torch copies no more than state and groups; L-BFGS needs more
            if name not in vars(own):
                vars(own)[name] = copy.deepcopy(value, memo)
    except Exception as error:
        raise UnservedError(
            f"The optimizer should be copyable, so that a step can be tried without taking it. Found a "
            f"{type(optimizer).__name__} that is not ({error}). Watch a signal that takes no steps."
        ) from error
    vars(own).pop("step", None)  # a scheduler's, which counts the steps of the original
    for name, value in vars(own).items():
        if name.endswith("_hooks"):
            value.clear()
    return own


def _takes_a_closure(optimizer: Optimizer) -> bool:
    """Whether `step` cannot be called without one, as that of L-BFGS."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(optimizer.step).parameters.values()
    return any(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


@contextmanager
def _no_global_step_hooks() -> Iterator[None]:
    """Hooks on the steps of all optimizers are not called for ours."""
    registered: tuple[dict[int, Any], ...] = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    saved = [dict(hooks) for hooks in registered]
    for hooks in registered:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in zip(registered, saved, strict=True):
            hooks.update(before)


def _checked(probe: Probe, optimizer: Optimizer | None) -> Optimizer:
    if optimizer is None:
        raise UnservedError(
            "This signal takes hypothetical steps with the optimizer of training. Found none. Pass optimizer=..."
        )
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"Parameter `optimizer` should be a torch.optim.Optimizer. Found a {type(optimizer).__name__}."
        )
    trained = {id(parameter) for parameter in probe.parameters()}
    if not any(id(parameter) in trained for group in optimizer.param_groups for parameter in group["params"]):
        raise ArgumentError(
            f"The optimizer should hold parameters of the model. Found a {type(optimizer).__name__} without any of the "
            f"{len(trained)} trainable ones of {type(probe.model).__name__}. Pass the one built from "
            "model.parameters(), after the model was last replaced."
        )
    return optimizer


def _some(probe: Probe, batches: Iterable[Any]) -> list[Any]:
    listed = probe.listed(batches)
    if not listed:
        raise BatchesError("A hypothetical step needs at least 1 batch. Found none. Check the dataset.")
    return listed


def _relabelled(batch: Any, output: Tensor, generator: torch.Generator) -> Any:
    """The pair with uniformly random classes for targets; negative targets (padding) stay what they are."""
    (inputs, targets), remedy = batch, "Watch another signal where targets are no classes."
    if not isinstance(targets, Tensor) or targets.dtype is torch.bool or targets.is_floating_point():
        kind = f"of type {targets.dtype}" if isinstance(targets, Tensor) else f"that are a {type(targets).__name__}"
        raise UnservedError(f"Random labels need batches (inputs, integer classes). Found targets {kind}. {remedy}")
    num_classes = _num_classes(output, targets, remedy)
    drawn = torch.randint(num_classes, targets.shape, generator=generator, device="cpu")
    labels = torch.where(targets < 0, targets, drawn.to(targets))
    return type(batch)([inputs, labels]) if type(batch) in (tuple, list) else (inputs, labels)


def _num_classes(output: Tensor, targets: Tensor, remedy: str) -> int:
    """Outputs (m, C, ...) as cross entropy takes them, (m, ..., C), or one number a sample for two classes."""
    if output.shape[1:].numel() == 1:
        return 2
    if output.shape[:1] + output.shape[2:] == targets.shape:
        return output.shape[1]
    if output.shape[:-1] == targets.shape:
        return output.shape[-1]
    raise UnservedError(
        f"Random labels need one integer class a sample. Found targets of shape {tuple(targets.shape)} for outputs of "
        f"shape {tuple(output.shape)}. {remedy}"
    )
