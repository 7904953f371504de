"""Moments of per-sample gradients, by batch and by class.

A matrix of n x d is never formed. Linear layers have a closed form (`linear_layers`); all other parameters use
`torch.func.vmap` on a few samples at a time, or one sample at a time if the model does not support vmap. Both end in
sums over coordinates, in double precision.

The model is in evaluation mode: with the statistics of a batch no gradient of a single sample exists, so BatchNorm uses
its running statistics, and dropout is off. The loss of a sample is the one it would have in a batch of one, times the
weight of its class if classes have weights, and is assumed to depend on that sample alone.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from heldin.errors import BatchesError, LossError, UnmeasurableError
from heldin.gradients import Row, as_real, num_values
from heldin.probing.batches import Batch, Rebuild, as_list, require_pair, select_samples, split_samples, to_device
from heldin.probing.isolation import preserve_attributes
from heldin.probing.linear_layers import Factors, linear_factors, record_linear_calls
from heldin.probing.losses import ignored_index, without_ignored
from heldin.probing.output_losses import IGNORED_LABEL
from heldin.probing.probe import Probe, WithParameters, derivatives, gradient, keep_freed_memory

CHUNK_BYTES = 64 * 2**20  # of the gradients of a chunk of samples
CHUNK_SAMPLES = 4  # at least, however large the model
BLOCK = 2**20  # values converted to double precision at a time: 8 MB
# A variance below this fraction of the mean square is rounding: gradients in single precision that should be equal
# differ by 6e-8 of their size (its square is 4e-15), and a difference of sums in double precision by 1e-16 n.
NO_VARIANCE = 1e-13
ONE_BY_ONE = "one by one"
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Moments:
    """Sums over the gradients g_1, ..., g_n of the samples of one batch, and over coordinates."""

    num_samples: int  # n
    num_parameters: int  # d
    num_live: int  # coordinates in which the gradients differ between samples
    t_sq_sum: float  # sum over live coordinates of t^2 = n mean^2 / variance, the variance with ddof 1
    mean_sq: float  # ||mean of g_i||^2
    variance: float  # sum over coordinates of the variance, ddof 1
    norm_sq_sum: float  # sum of ||g_i||^2


@dataclass(frozen=True)
class ClassMoments:
    """Sums over the gradients of the samples of one class."""

    label: int
    num_samples: int  # n
    norm_sum: float  # sum of ||g_i||
    norm_sq_sum: float  # sum of ||g_i||^2
    sum_sq: float  # ||sum of g_i||^2
    num_units: int  # samples whose gradient is not zero
    unit_sum_sq: float  # ||sum of g_i / ||g_i|| ||^2, over those


def sample_moments(probe: Probe, batches: Iterable[Batch], *, seed: int | None = None) -> tuple[Moments, ...]:
    """Return the moments of the per-sample gradients of each batch, at the model's present weights.

    `seed` replaces that of the probe. A batch of fewer than 2 samples is skipped, with a warning.
    """
    given = as_list(batches)
    counted = [own for batch in given if (own := without_ignored(probe.loss.loss_fn, batch)) is not None]
    found: list[Moments] = []
    with probe.session(seed=seed, mode="eval") as devices:
        _refuse_batch_statistics(probe.model)
        for split in _split_parameters(probe, (to_device(batch, devices) for batch in counted)):
            if split.num_samples >= 2:
                found.append(_moments(probe, split))
    if not found:
        raise BatchesError(
            f"At least one batch should have 2 samples, to compare their gradients. Found {len(given)} batches, and "
            "none that has. Use a larger batch size."
        )
    if len(found) < len(given):
        skipped = f"{len(given) - len(found)} of {len(given)} batches skipped: fewer than 2 samples."
        probe.warn_once("single samples", skipped)
    return tuple(found)


def class_moments(probe: Probe, batches: Iterable[Batch], *, seed: int | None = None) -> tuple[ClassMoments, ...]:
    """Return the moments of the gradients of each class with at least 2 samples, over all batches.

    `seed` replaces that of the probe. Classes are processed one at a time, so memory is that of a few gradients.
    """
    given = [own for batch in as_list(batches) if (own := without_ignored(probe.loss.loss_fn, batch)) is not None]
    labels = [_class_targets(batch) for batch in given]
    found = ignored_index(probe.loss.loss_fn)
    ignored = IGNORED_LABEL if found is None else found
    classes = Counter(label for own in labels for label in own.tolist() if label != ignored)
    wanted = sorted(label for label, count in classes.items() if count >= 2)
    if not wanted:
        raise BatchesError(
            f"At least one class should have 2 samples in the batches. Found {classes.total()} samples of "
            f"{len(classes)} classes. Give more batches, or larger ones."
        )
    with probe.session(seed=seed, mode="eval") as devices:
        _refuse_batch_statistics(probe.model)
        given = [to_device(batch, devices) for batch in given]
        norms = [_norms(probe, split) for split in _split_parameters(probe, given)]
        return tuple(_moments_of_class(probe, given, labels, norms, label) for label in wanted)


@dataclass(frozen=True)
class _Split:
    """A batch, the linear layers in closed form, and the parameters left to vmap."""

    batch: Batch
    num_samples: int
    layers: list[Factors]
    rest: list[nn.Parameter]


def _split_parameters(probe: Probe, batches: Iterable[Batch]) -> Iterator[_Split]:
    """One ordinary forward pass per batch, and a backward pass that stops at the linear layers."""
    keep_freed_memory()
    trusted: set[nn.Linear] | None = None
    for batch in batches:
        with record_linear_calls(probe.model) as calls:
            losses = probe.losses(batch, alone=True)
        layers = linear_factors(losses, calls, trusted=trusted)
        if trusted is None and losses.numel() >= 2:
            trusted = {layer.module for layer in layers}
        closed = {parameter for layer in layers for parameter in layer.parameters}
        rest = [parameter for parameter in probe.parameters() if parameter not in closed]
        split = _Split(batch, losses.numel(), layers, rest)
        del losses, calls  # frees the graph and its activations
        yield split


@torch.no_grad()
def _moments(probe: Probe, split: _Split) -> Moments:
    totals, num = _Totals(), split.num_samples
    for layer in split.layers:
        if layer.weight is not None and layer.inputs.shape[1] == 1:
            _add_outer_products(totals, layer.inputs[:, 0], layer.deltas[:, 0])
        elif layer.weight is not None:
            weight = _RunningMoments()
            for gradients in _weight_gradients(layer, layer.weight):
                weight.add(gradients)
            weight.add_to(totals)
        if layer.bias is not None:
            bias = _RunningMoments()
            bias.add(layer.deltas.sum(1))
            bias.add_to(totals)
    running = [_RunningMoments() for _ in split.rest]
    for chunk in _other_gradients(probe, split):
        for parameter, gradients in zip(running, chunk, strict=True):
            parameter.add(gradients)
    for parameter in running:
        parameter.add_to(totals)
    totals.variance = max(0.0, totals.variance)
    return Moments(num_samples=num, num_parameters=sum(map(num_values, probe.parameters())), **vars(totals))


@torch.no_grad()
def _norms(probe: Probe, split: _Split) -> Tensor:
    """||g_i|| of the samples of a batch: (n,), in double precision on the CPU."""
    total = torch.zeros(split.num_samples, dtype=torch.float64, device="cpu")
    for layer in split.layers:
        if layer.weight is not None and layer.inputs.shape[1] == 1:
            total += _norms_sq(layer.inputs) * _norms_sq(layer.deltas)
        elif layer.weight is not None:
            total += torch.cat([_norms_sq(gradients) for gradients in _weight_gradients(layer, layer.weight)])
        if layer.bias is not None:
            total += _norms_sq(layer.deltas.sum(1))
    done = 0
    for chunk in _other_gradients(probe, split):
        size = chunk[0].shape[0]
        total[done : done + size] += torch.stack([_norms_sq(part) for part in chunk]).sum(0)
        done += size
    return total.sqrt()


def _refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None):
            raise UnmeasurableError(
                "In evaluation mode every layer should process each sample independently, so that gradients of single "
                f"samples exist. Found {type(module).__name__} {name!r}, which uses the statistics of the batch. Keep "
                "its running statistics (track_running_stats=True), use GroupNorm, or choose signals over batch "
                "gradients."
            )


# Gradients of single samples: vmap over chunks, or one by one.


def chunk_size(num_samples: int, parameters: Sequence[nn.Parameter]) -> int:
    """The number of samples per chunk: at most 64 MB of gradients, at least 4 samples, chunks of similar size."""
    sample_bytes = sum(p.numel() * p.element_size() for p in parameters)
    size = min(num_samples, max(CHUNK_SAMPLES, CHUNK_BYTES // max(1, sample_bytes)))
    num_chunks = -(-num_samples // size)
    return -(-num_samples // num_chunks)


def _weight_gradients(layer: Factors, weight: nn.Parameter) -> Iterator[Tensor]:
    """Yield for each chunk of c samples the gradients of a linear layer's weight: (c, o, i)."""
    size = chunk_size(len(layer.inputs), [weight])
    with torch.autocast(layer.inputs.device.type, enabled=False):
        for inputs, deltas in zip(torch.split(layer.inputs, size), torch.split(layer.deltas, size), strict=True):
            yield torch.bmm(deltas.transpose(1, 2), inputs)


def _other_gradients(probe: Probe, split: _Split) -> Iterator[list[Tensor]]:
    """Yield for each chunk of c samples the gradients of each of the other parameters: (c, *shape)."""
    if not split.rest:
        return
    rows, rebuild = split_samples(split.batch, split.num_samples)
    size = chunk_size(split.num_samples, split.rest)
    vectorized = _vectorized(probe, rebuild, split.rest)
    for start in range(0, split.num_samples, size):
        chunk = [tensor[start : start + size] for tensor in rows]
        found = None
        if ONE_BY_ONE not in probe.warn_once.topics:
            try:
                with preserve_attributes(probe.model, *probe.loss.parts):  # tensors of vmap that modules store
                    found = vectorized(chunk)
            except Exception as error:  # whatever a model raises inside vmap; its own errors are raised again below
                if isinstance(error.__context__, KeyboardInterrupt):  # vmap could not close its levels
                    raise error.__context__ from None
                problem = f"{type(error).__name__}: {error}".split("\n")[0][:200]
                found = _one_by_one(probe, chunk, rebuild, split.rest)
                probe.warn_once(
                    ONE_BY_ONE,
                    "Gradients of single samples are computed one sample at a time, which is slow: the model does not "
                    f"support torch.func.vmap ({problem}). The numbers are the same.",
                )
        yield _one_by_one(probe, chunk, rebuild, split.rest) if found is None else found


def _vectorized(
    probe: Probe, rebuild: Rebuild, parameters: Sequence[nn.Parameter]
) -> Callable[[list[Tensor]], list[Tensor]]:
    """The function from c samples to their gradients, by vmap."""
    module = WithParameters(probe.model)
    names = {parameter: name for name, parameter in module.named_parameters()}
    values = {names[parameter]: parameter.detach() for parameter in parameters}

    def loss(values: dict[str, Tensor], sample: list[Tensor]) -> Tensor:
        batch = rebuild([tensor.unsqueeze(0) for tensor in sample])
        return module.run(lambda: _single_loss(probe, batch), values)

    each = vmap(grad(loss), in_dims=(None, 0), randomness="different")

    def gradients(chunk: list[Tensor]) -> list[Tensor]:
        with torch.no_grad(), warnings.catch_warnings():
            # An operation without a batching rule: torch runs it sample by sample, and the numbers are right.
            warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
            found = each(values, chunk)
        return [as_real(found[names[parameter]]) for parameter in parameters]

    return gradients


@torch.enable_grad()
def _one_by_one(
    probe: Probe, chunk: list[Tensor], rebuild: Rebuild, parameters: Sequence[nn.Parameter]
) -> list[Tensor]:
    """The same gradients by one forward and backward pass per sample."""
    num = chunk[0].shape[0]
    found = [as_real(torch.zeros((num, *p.shape), dtype=p.dtype, device=p.device)) for p in parameters]
    for number in range(num):
        loss = _single_loss(probe, rebuild([tensor[number : number + 1] for tensor in chunk]))
        if not loss.requires_grad:  # this sample's loss does not depend on the model
            continue
        for rows, part in zip(found, derivatives(loss, parameters), strict=True):
            if part is not None:
                rows[number] = as_real(part)
    return found


def _single_loss(probe: Probe, batch: Batch) -> Tensor:
    losses = probe.losses(batch, check=False, alone=True)
    if losses.numel() != 1:
        raise LossError(
            f"A batch of one sample should have one loss. Found {losses.numel()}. Check that the first dimension of "
            "every tensor in a batch is the sample, or pass sample_losses=f with f(model, batch) -> (m,)."
        )
    return losses.sum()


# Sums over coordinates, in double precision: n mean^2 and the sum of squares about the mean.


@dataclass
class _Totals:
    """The fields of `Moments`, summed parameter by parameter."""

    num_live: int = 0
    t_sq_sum: float = 0.0
    mean_sq: float = 0.0
    variance: float = 0.0
    norm_sq_sum: float = 0.0

    def add(self, num_samples: int, signal: Tensor, centred: Tensor, square: Tensor) -> None:
        """Add coordinates: n mean^2, sum of squares about the mean, sum of squares. Overwrites the first two."""
        varies = centred > (NO_VARIANCE * (num_samples - 1) / num_samples) * square
        self.num_live += int(torch.count_nonzero(varies))
        self.mean_sq += float(signal.sum()) / num_samples
        self.variance += float(centred.sum()) / (num_samples - 1)
        self.norm_sq_sum += float(square.sum())
        if math.isfinite(self.norm_sq_sum):
            ratio = signal.div_(centred.masked_fill_(~varies, math.inf))  # x / inf leaves the coordinate out
            self.t_sq_sum += float(ratio.sum()) * (num_samples - 1)
        else:
            self.t_sq_sum = math.nan


class _RunningMoments:
    """Mean and sum of squares about the mean, chunk by chunk (Chan, Golub, LeVeque 1979), without cancellation."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None  # (d,)
        self.centred: Tensor | None = None  # (d,)

    def add(self, gradients: Tensor) -> None:
        """Add the gradients of c samples, (c, ...)."""
        rows = gradients.detach().flatten(1)
        if self.mean is None or self.centred is None:
            device = _device_with_doubles(rows.device)
            self.mean = torch.zeros(rows.shape[1], dtype=torch.float64, device=device)
            self.centred = torch.zeros_like(self.mean)
        num, total = rows.shape[0], self.count + rows.shape[0]
        width = max(1, BLOCK // num)
        for block, mean, centred in zip(
            torch.split(rows, width, dim=1),
            torch.split(self.mean, width),
            torch.split(self.centred, width),
            strict=True,
        ):
            values = _as_doubles(block)
            own = values.mean(0)
            values.sub_(own)
            centred += values.square_().sum(0)
            own -= mean
            mean += own * (num / total)
            centred += own.square_() * (self.count * num / total)
        self.count = total

    def add_to(self, totals: _Totals) -> None:
        """Add the result to the totals. May be called once."""
        assert self.mean is not None
        assert self.centred is not None
        signal = self.mean.square_().mul_(self.count)
        totals.add(self.count, signal, self.centred, self.centred + signal)


def _add_outer_products(totals: _Totals, inputs: Tensor, deltas: Tensor) -> None:
    """Add the coordinates of the gradients delta_i a_i^T of a weight: inputs (n, i), deltas (n, o)."""
    num, a, delta = inputs.shape[0], _as_doubles(inputs), _as_doubles(deltas)
    signal = delta.T @ a  # (o, i): the sum over samples
    square = delta.square_().T @ a.square_()  # (o, i): the sum of squares
    signal.square_().div_(num)
    # In double precision ten digits remain where the variance is 1e-6 of the mean square.
    totals.add(num, signal, square - signal, square)


def _as_doubles(values: Tensor) -> Tensor:
    """A copy in double precision."""
    return values.detach().to(device=_device_with_doubles(values.device), dtype=torch.float64, copy=True)


def _norms_sq(gradients: Tensor) -> Tensor:
    """||g_i||^2 of gradients (c, ...): (c,), in double precision on the CPU."""
    rows = gradients.detach().flatten(1)
    parts = [_as_doubles(block).square_().sum(1) for block in torch.split(rows, max(1, BLOCK // rows.shape[0]), dim=1)]
    return torch.stack(parts).sum(0).cpu()


def _device_with_doubles(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device  # MPS has no double precision


# Classes: once the norms ||g_i|| are known, the sums of the g_i and of the g_i / ||g_i|| are gradients of weighted sums
# of losses, so no gradient of a single sample is formed.


def _moments_of_class(
    probe: Probe, batches: list[Batch], labels: list[Tensor], norms: list[Tensor], label: int
) -> ClassMoments:
    masks = [own == label for own in labels]
    lengths = torch.cat([part[mask] for part, mask in zip(norms, masks, strict=True)])
    num_units = int(torch.count_nonzero(lengths))
    sum_sq = unit_sum_sq = 0.0
    if num_units:
        size = float(lengths.sum()) / num_units  # directions are scaled to this length: weights near 1 cannot overflow
        parameters = probe.parameters()
        total: Row = (None,) * len(parameters)
        units = total
        for samples, own in _samples_of_class(batches, masks, norms):
            losses = probe.losses(samples, alone=True)
            total = _add_rows(total, gradient(losses, torch.ones_like(own), parameters, keep_graph=True))
            weights = torch.where(own > 0, size / own, 0.0)
            units = _add_rows(units, gradient(losses, weights, parameters, keep_graph=False))
        sum_sq, unit_sum_sq = _norm_sq(total), _norm_sq(units) / size**2
    return ClassMoments(
        label=label,
        num_samples=lengths.numel(),
        norm_sum=float(lengths.sum()),
        norm_sq_sum=float(lengths.square().sum()),
        sum_sq=sum_sq,
        num_units=num_units,
        unit_sum_sq=unit_sum_sq,
    )


def _class_targets(batch: Batch) -> Tensor:
    """The integer classes of an (inputs, targets) batch: (n,), on the CPU."""
    remedy = "Leave out signals that compare the samples of a class, or give the classes as targets."
    require_pair(batch, UnmeasurableError, remedy)
    targets = batch[1]
    if isinstance(targets, Tensor) and targets.ndim == 1 and targets.dtype in INTEGERS:
        return targets.cpu()
    found = f"targets in a {type(targets).__name__}"
    if isinstance(targets, Tensor):
        found = f"targets of shape {tuple(targets.shape)} and type {targets.dtype}"
    raise UnmeasurableError(f"Targets should be one integer class per sample: shape (m,). Found {found}. {remedy}")


def _add_rows(one: Row, other: Row) -> Row:
    return tuple(b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True))


def _norm_sq(row: Row) -> float:
    return sum(float(_norms_sq(part[None])) for part in row if part is not None)


_Piece = tuple[Batch, Tensor]  # samples, and the norms of their gradients


def _samples_of_class(batches: list[Batch], masks: list[Tensor], norms: list[Tensor]) -> Iterator[_Piece]:
    """The samples selected by `masks`, with their norms; tensors are concatenated to at most the size of a batch."""
    largest = max(mask.numel() for mask in masks)
    held: list[_Piece] = []
    for batch, mask, norm in zip(batches, masks, norms, strict=True):
        if mask.any():
            piece = select_samples(batch, mask.numel(), mask.nonzero()[:, 0]), norm[mask]
            size = sum(len(own) for _, own in (*held, piece))
            if held and not (_same_shapes(held[0][0], piece[0]) and size <= largest):
                yield _concatenated(held)
                held = []
            held.append(piece)
    if held:
        yield _concatenated(held)


def _same_shapes(one: Batch, other: Batch) -> bool:
    return all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape[1:] == b.shape[1:] and a.dtype == b.dtype
        for a, b in zip(one, other, strict=True)
    )


def _concatenated(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    inputs, targets = (torch.cat(column) for column in zip(*(samples for samples, _ in pieces), strict=True))
    return (inputs, targets), torch.cat([norms for _, norms in pieces])
