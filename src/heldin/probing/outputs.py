"""Model + batches -> outputs: what the model says of each sample, in evaluation mode and without gradients."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from heldin.errors import BatchesError, UnservedError, require_integer
from heldin.probing.batches import moved
from heldin.probing.probe import Probe
from heldin.probing.structure import own_copy


def outputs(probe: Probe, batches: Iterable[Any], *, num_samples: int | None = None, seed: int | None = None) -> Tensor:
    """The outputs for the samples of `batches`, in their order, in evaluation mode -> (n, ...) on the CPU.

    Args:
        probe: holds the model.
        batches: exactly the batches to use. An iterator is read as it goes, and no further than is needed.
        num_samples: at most so many samples, the first ones; None takes all.
        seed: stands in for the probe's own.

    Raises:
        UnservedError: the model's output is, or holds, no tensor of outputs.
    """
    if num_samples is not None:
        require_integer("num_samples", num_samples, at_least=1, remedy="None takes all samples.")
    source = batches if isinstance(batches, Iterator) else probe.listed(batches)
    with probe.session(seed=seed, mode="eval") as devices:
        try:
            return collected(probe, source, devices, num_samples)
        finally:
            if isinstance(source, Generator):
                source.close()  # here, so that the randomness it holds is given back before the session's


@torch.no_grad()
def collected(
    probe: Probe, batches: Iterable[Any], devices: set[torch.device], num_samples: int | None = None
) -> Tensor:
    """`outputs`, inside a session that is in evaluation mode."""
    parts: list[Tensor] = []
    missing = num_samples
    for batch in batches:
        part = output_of(probe, moved(batch, devices)).detach().cpu()
        parts.append(part if missing is None else part[:missing])
        if missing is not None:
            missing -= len(parts[-1])
            if missing == 0:
                break
    if not parts:
        raise BatchesError("Outputs need at least 1 batch. Found none: the batches are empty. Check the dataset.")
    shapes = dict.fromkeys(tuple(part.shape[1:]) for part in parts)
    if len(shapes) > 1:
        raise BatchesError(
            f"The outputs of all samples should have the same shape. Found {' and '.join(map(str, shapes))}. "
            "Give batches whose inputs have one size: pad or crop them alike."
        )
    return torch.cat(parts)


def output_of(probe: Probe, batch: Any) -> Tensor:
    """The model's output for one batch, inside a session."""
    if probe.sample_losses is None:
        if not is_pair(batch):
            raise BatchesError(
                f"A batch should be a pair (inputs, targets). Found a {type(batch).__name__}. For other batches pass "
                "loss_fn=None and sample_losses=f with f(model, batch) -> tensor of shape (m,)."
            )
        inputs, targets = batch
        output = output_tensor(probe.model(own_copy(inputs)))
        if isinstance(targets, Tensor) and targets.ndim and len(targets) != len(output):
            raise BatchesError(
                f"Outputs and targets of a batch should be equally many. Found outputs of shape {tuple(output.shape)} "
                f"and targets of shape {tuple(targets.shape)}. The first dimension of both is the sample."
            )
        return output
    heard: list[Any] = []
    handle = probe.model.register_forward_hook(lambda module, arguments, result: heard.append(result))
    try:
        probe.losses(batch, check=False)
    finally:
        handle.remove()
    if not heard:
        raise UnservedError(
            "`sample_losses` should call the model, model(...), so that its output can be seen. Found no such call: "
            "perhaps it calls model.forward(...), a part of the model, or another model."
        )
    return output_tensor(heard[-1])  # a loss that runs the model several times looks at the last one last


def output_tensor(result: Any) -> Tensor:
    """The tensor (m, ...) in what a model returned: itself, its `logits`, or the first one of a tuple."""
    found = result
    if isinstance(result, Mapping):
        found = result.get("logits")
    elif not isinstance(result, Tensor) and hasattr(result, "logits"):
        found = result.logits
    elif isinstance(result, (tuple, list)):
        found = next((part for part in result if isinstance(part, Tensor) and part.ndim), None)
    if isinstance(found, Tensor) and found.ndim:
        return found
    keys = f" with the keys {', '.join(map(repr, result))}" if isinstance(result, Mapping) else ""
    kind = "a single number" if isinstance(found, Tensor) else f"a {type(result).__name__}{keys}"
    raise UnservedError(
        "The model's output should be a tensor with one row a sample, something with such a tensor as its `logits`, or "
        f"a tuple with it in front. Found {kind}. Wrap the model in a module that returns the tensor."
    )


def is_pair(batch: Any) -> bool:
    """Whether a batch is (inputs, targets)."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def require_pair(batch: Any) -> None:
    """Refuse a batch that is no (inputs, targets), for who looks at the targets themselves."""
    if is_pair(batch):
        return
    found = f"a {type(batch).__name__}"
    if isinstance(batch, Mapping):
        found += f" with the keys {', '.join(map(repr, batch))}"
    elif isinstance(batch, (tuple, list)):
        found += f" of {len(batch)}"
    raise UnservedError(
        f"A signal that looks at the targets needs batches that are pairs (inputs, targets). Found {found}. Give pairs "
        "and a loss_fn for them, or watch a signal that takes any batch, as gradient_disparity does."
    )
