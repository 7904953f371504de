"""Probe: gradients of batches at the present weights of a model.

The model is run only inside `Probe.session`, which restores everything on exit, also after an exception: buffers,
flags, `.grad`, hooks and every random stream. Parameters are never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from heldin.distributed import Ranks
from heldin.errors import (
    ArgumentError,
    BatchesError,
    LossError,
    NoSpreadError,
    NotPositiveError,
    WarnOnce,
    near_match,
    require_bool,
    require_choice,
    short_repr,
)
from heldin.gradients import Gradients, Row, as_real, num_values
from heldin.probing import rescaling
from heldin.probing.batches import Batch, as_list, split_indices, to_device
from heldin.probing.isolation import (
    eager_full_precision,
    parameter_versions,
    preserve_state,
    refuse_unready,
    seeded_randomness,
    unwrap_model,
)
from heldin.probing.losses import BatchLoss, LossFunction, SampleLosses, TrainingLoss
from heldin.probing.rescaling import PLAIN, RESCALINGS, BatchProblem, Rescale, backward_pass, std_of_components
from heldin.probing.sharding import Shards, is_sharded, local_shard
from heldin.probing.storage import (
    GradientMemory,
    ReducedGradient,
    Sketch,
    is_reduced,
    num_sketches,
    resolve_memory,
)

Mode = Literal["train", "eval"]
Result = TypeVar("Result")

MODES: tuple[Mode, ...] = ("train", "eval")
MASKED_REMEDY = (
    "pass nn.CrossEntropyLoss(ignore_index=...), or sample_losses=f that returns the losses of the others, with "
    "num_samples=g for their number."
)
MIN_ZEROS = 2  # losses of exactly 0 in a batch that cause a warning
ORDINARY = 1e-4  # the smallest other loss exceeds it, also relative to their mean, if zeros are not due to rounding
REENTRANT = (
    "Gradients of the model should be computable without writing to `.grad`. Found reentrant gradient checkpointing, "
    "with which they are not. Write checkpoint(..., use_reentrant=False), which torch recommends; in transformers it "
    'is gradient_checkpointing_kwargs={"use_reentrant": False}.'
)


class Probe:
    """Computes gradients of batches at a model's present weights.

    Args:
        model: any module with trainable parameters. DDP and DataParallel wrappers are removed.
        loss_fn: the loss used in training, as for `EarlyStopping`; None if `sample_losses` is given.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are not (inputs, targets) pairs.
        batch_loss: f(model, batch) -> one number, for a loss without losses of single samples.
        num_samples: f(batch) -> m, the number of samples of a batch whose tensors do not show it.
        mode: `"train"` (as in the paper: dropout is active, BatchNorm uses the batch) or `"eval"`.
        autocast: keep an autocast region around the call; by default the probe runs in full precision.
        seed: seed of the randomness inside a measurement (dropout).
        memory: how gradients of batches are held: `"full"`, `"bf16"`, `"sketch"` or a `Sketch`.
        layers: names of modules or parameters, or patterns of them; gradients are taken for these parameters alone.

    Examples:
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
        batch_loss: BatchLoss | None = None,
        num_samples: Callable[[Batch], int] | None = None,
        mode: Mode = "train",
        autocast: bool = False,
        seed: int = 0,
        memory: GradientMemory = "full",
        layers: str | Sequence[str] | None = None,
    ) -> None:
        require_choice("mode", mode, MODES)
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"Parameter `model` should be a torch.nn.Module. Found {type(model).__name__}.")
        self.model = unwrap_model(model)
        self.loss = TrainingLoss.create(self.model, loss_fn, sample_losses, batch_loss, num_samples)
        self.mode = mode
        require_bool("autocast", autocast)
        self.autocast = autocast
        self.seed = seed
        self.memory = resolve_memory(memory)
        self.layers = _as_patterns(layers)
        self.warn_once = WarnOnce()
        self.shards = Shards(self.model) if is_sharded(self.model) else None
        self._losses = self.loss.per_sample()
        self.measured_parameters()

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, each once."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters:
            raise ArgumentError(
                f"The model should have trainable parameters. Found none in {type(self.model).__name__}: "
                "it has no parameters (is it the loss? the model comes first), or all have requires_grad=False. "
                "Unfreeze the part that is trained."
            )
        return parameters

    @property
    def num_measured(self) -> int:
        """The number of real values in a gradient, d."""
        return sum(map(num_values, self.measured_parameters()))

    def measured_parameters(self) -> list[nn.Parameter]:
        """The trainable parameters in `layers`, whose gradients are taken: all of them by default."""
        if self.layers is None:
            return self.parameters()
        named = {_plain_name(name): parameter for name, parameter in self.model.named_parameters()}
        for pattern in self.layers:
            if not any(_is_in_layer(name, pattern) for name in named):
                prefixes = {name.rpartition(".")[0] or name for name in named}
                raise ArgumentError(
                    "Parameter `layers` should name modules or parameters of the model. Found that nothing in "
                    f"{type(self.model).__name__} is called {pattern!r}.{near_match(pattern, prefixes)} Names are "
                    'those of model.named_parameters(), as in layers="encoder.layers.3" or layers=["head", "*.bias"].'
                )
        trainable = set(self.parameters())
        found = [
            parameter
            for name, parameter in named.items()
            if parameter in trainable and any(_is_in_layer(name, pattern) for pattern in self.layers)
        ]
        if not found:
            raise ArgumentError(
                f"Parameter `layers` should name trainable parameters. Found that all in {list(self.layers)} have "
                "requires_grad=False. Name a part of the model that is trained."
            )
        return found

    @contextmanager
    def session(self, *, seed: int | None = None, mode: Mode | None = None) -> Iterator[set[torch.device]]:
        """A context in which the model may be run; on exit everything is as before. Yields the model's devices.

        Randomness inside follows from `seed`. `seed` and `mode` replace those of the probe.
        """
        refuse_unready(self.model)
        versions = parameter_versions(self.model)
        devices = {parameter.device for parameter in self.parameters()}
        models = [held for held in (self.model, *self.loss.parts) if isinstance(held, nn.Module)]
        modules = [module for model in models for module in model.modules()]
        with (
            seeded_randomness(self.seed if seed is None else seed, *self.loss.parts, *modules),
            eager_full_precision(device_types={device.type for device in devices}, autocast=self.autocast),
            nullcontext() if self.shards is None else self.shards.session(),
            preserve_state(*models, mode=self.mode if mode is None else mode),
        ):
            self._losses = self.loss.per_sample()  # the loss as it is now
            yield devices
        for name, version in parameter_versions(self.model).items():
            if version != versions.get(name):
                self.warn_once(
                    "weights written",
                    f"The forward pass of {type(self.model).__name__} writes to its weights ({name}). Weights are not "
                    "restored after a measurement: training continues from what it wrote. Buffers are: register what "
                    "forward writes with register_buffer().",
                )

    def losses(self, batch: Batch, *, check: bool = True, alone: bool = False) -> Tensor:
        """The losses of the samples of a batch (m,), inside a session; see `TrainingLoss.per_sample`."""
        if check and not alone:
            return self._losses(self.model, batch)
        return self.loss.per_sample(check=check, alone=alone)(self.model, batch)

    def training_loss(self, batch: Batch) -> Tensor:
        """The scalar that training differentiates, inside a session: the user's loss with its reduction."""
        return self.loss.of_batch(self.model, batch)

    def gradients(
        self,
        batches: Iterable[Batch],
        rescale: Rescale = "std",
        *,
        against: Iterable[Batch] | None = None,
        pool: Iterable[Batch] | None = None,
    ) -> Gradients:
        """The gradient of each batch's re-scaled mean loss, one row per batch.

        Args:
            batches: exactly the batches to use.
            rescale: one of `"std"`, `"std_detached"`, `"minmax"`, `"none"`, `"grad_std"`, `"pooled_std"`, `"mean"`.
            against: a second set of batches, whose rows follow those of the first.
            pool: for `"pooled_std"`: the batches whose losses give the standard deviation; `batches` if None.
        """
        return self.collect(batches, [rescale], against=against, pool=pool)[rescale]

    def collect(
        self,
        batches: Iterable[Batch],
        rescalings: Iterable[Rescale],
        *,
        against: Iterable[Batch] | None = None,
        pool: Iterable[Batch] | None = None,
        compared: Iterable[Rescale] | None = None,
        seed: int | None = None,
        at_least: int = 1,
        num_parts: int = 1,
        ranks: Ranks | None = None,
    ) -> dict[Rescale, Gradients]:
        """`gradients` for several re-scalings: one forward pass per batch, and no backward pass twice.

        The batches of `against` are used with the re-scalings in `compared`, by default all. `seed` replaces that of
        the probe. Fewer than `at_least` usable batches raise an error. With `num_parts` the losses of each batch are
        split into parts at random, with one row for each part. With `ranks` the batches are those of this rank, and
        the usable ones of all ranks count.
        """
        wanted = list(dict.fromkeys(rescalings))
        for unknown in {*wanted}.difference(RESCALINGS):
            require_choice("rescale", unknown, RESCALINGS)
        with_second = wanted if compared is None else [rescale for rescale in wanted if rescale in {*compared}]
        parameters = self.measured_parameters()
        first = as_list(batches)
        second = [] if against is None else as_list(against, "against")
        pooled = None if pool is None else as_list(pool, "pool")
        if ranks is None and (len(first) * num_parts < at_least or (against is not None and not second)):
            raise _too_few_batches(wanted[0], len(first), len(second), at_least, [])
        part_seed = self.seed if seed is None else seed

        def run() -> tuple[list[BatchResult], list[BatchResult]]:
            with self.session(seed=seed) as devices:
                results = [
                    result
                    for batch in first
                    for result in self._batch_results(
                        to_device(batch, devices), wanted, parameters, num_parts, part_seed
                    )
                ]
                others = [
                    result
                    for batch in second
                    for result in self._batch_results(to_device(batch, devices), with_second, parameters)
                ]
                self._report_unreached((*results, *others), parameters)
                if "pooled_std" in wanted:
                    pooled_losses = [result.losses for result in results]
                    if pooled is not None:
                        pooled_losses = [self.losses(to_device(batch, devices)).detach().cpu() for batch in pooled]
                    std = rescaling.pooled_std(pooled_losses)
                    for result in (*results, *others):
                        result.divide("pooled_std", std, BatchProblem.EQUAL_POOLED_LOSSES)
            return results, others

        results, others = run() if ranks is None or self.shards is not None else ranks.guarded(run)
        return {
            name: self._assemble(name, results, others if name in with_second else [], parameters, at_least, ranks)
            for name in wanted
        }

    def assemble(
        self,
        results: list[BatchResult],
        rescalings: Iterable[Rescale],
        parameters: Sequence[nn.Parameter],
        *,
        at_least: int = 1,
        ranks: Ranks | None = None,
    ) -> dict[Rescale, Gradients]:
        """`collect` for results that exist already: the gradients of training, with a scale for each re-scaling."""
        self._report_unreached(results, parameters)
        return {
            name: self._assemble(name, results, [], parameters, at_least, ranks) for name in dict.fromkeys(rescalings)
        }

    def _batch_results(
        self, batch: Batch, wanted: list[Rescale], parameters: list[nn.Parameter], num_parts: int = 1, seed: int = 0
    ) -> list[BatchResult]:
        """One forward pass and the gradients of its losses, or of each of `num_parts` random parts of them."""
        if self.loss.batch_loss is not None:
            loss = self._on_all_ranks(partial(self.training_loss, batch)).reshape(1)
            return [self._batch_gradient(loss, self.loss.count_samples(batch) or 0, wanted, parameters)]
        losses = self._on_all_ranks(partial(self.losses, batch))
        if num_parts == 1:
            return [self._batch_gradient(losses, losses.numel(), wanted, parameters)]
        parts = [losses[index] for index in split_indices(losses.numel(), num_parts, seed=seed)]
        return [
            self._batch_gradient(part, part.numel(), wanted, parameters, keep_graph=part is not parts[-1])
            for part in parts
        ]

    def _on_all_ranks(self, loss: Callable[[], Tensor]) -> Tensor:
        """Compute a loss; if the model is sharded, an error on one rank is raised on all, before the backward pass."""
        return loss() if self.shards is None else self.shards.guarded_pass(loss)

    def _batch_gradient(
        self,
        losses: Tensor,
        num_samples: int,
        wanted: list[Rescale],
        parameters: list[nn.Parameter],
        *,
        keep_graph: bool = False,
    ) -> BatchResult:
        """One backward pass for each re-scaling that cannot share the plain one."""
        result = BatchResult(losses.detach().cpu().double(), num_samples)
        self.report_zero_losses(result.losses)
        own, num_shares = slice(None), 1
        if self.shards is not None:
            result.losses, own, num_shares = self.shards.gather_losses(result.losses)
            result.num_samples = sum(dict(self.shards.gather((self.shards.samples, num_samples))).values())
        eps = torch.finfo(losses.dtype).eps
        for name in wanted:
            problem = rescaling.find_problem(result.losses, name, eps)
            if problem is not None:
                result.problems[name] = problem
        usable = [name for name in wanted if name not in result.problems]
        passes = list(dict.fromkeys(map(backward_pass, usable)))
        gradient_std: Callable[[], float] = float  # replaced by that of the plain pass
        for backward in passes:
            weights = rescaling.sample_weights(backward, result.losses)[own] * num_shares
            needed = keep_graph or backward != passes[-1]
            if self.memory == "full" or not is_reduced(self.memory, sum(map(num_values, parameters))):
                row = parts = self._gradient(losses, weights, parameters, keep_graph=needed)
                std: Callable[[], float] = partial(std_of_components, [part for part in parts if part is not None])
            else:
                reduced = ReducedGradient(self.memory, parameters, with_moments="grad_std" in usable)
                if self.shards is None:
                    with reduced.receiving():
                        parts = gradient(losses, weights, parameters, keep_graph=needed)
                else:
                    parts = self._gradient(losses, weights, parameters, keep_graph=needed)
                    reduced.add_row(parts)
                row, std = reduced.row, reduced.std
            result.rows[backward] = row
            result.reached.update(number for number, part in enumerate(parts) if part is not None)
            if backward == PLAIN:
                gradient_std = std
        for name in usable:
            if backward_pass(name) == PLAIN:
                by = rescaling.divisor(name, result.losses, gradient_std)
                result.divide(name, by, BatchProblem.EQUAL_GRADIENT)
        return result

    def _gradient(self, losses: Tensor, weights: Tensor, parameters: list[nn.Parameter], *, keep_graph: bool) -> Row:
        if self.shards is None:
            return gradient(losses, weights, parameters, keep_graph=keep_graph)
        return self.shards.gradient(losses, weights, parameters, keep_graph=keep_graph)

    def report_zero_losses(self, losses: Tensor, remedy: str = MASKED_REMEDY) -> None:
        """Warn, once, about losses of exactly 0 among losses of an ordinary size: those of masked samples, perhaps."""
        num_zeros = int((losses == 0.0).sum())
        if not MIN_ZEROS <= num_zeros < losses.numel():
            return
        others = losses[losses != 0.0].abs()
        if others.min() > ORDINARY * max(float(others.mean()), 1.0):
            self.warn_once(
                "losses of 0",
                f"{num_zeros} of the {losses.numel()} losses of a batch are exactly 0 and count as samples. That is "
                "right if 0 is their loss, as with a margin. If the loss ignores or masks these samples, leave them "
                f"out: {remedy}",
            )

    def _report_unreached(self, results: Sequence[BatchResult], parameters: Sequence[nn.Parameter]) -> None:
        """Warn, once, about parameters that received no gradient in any batch."""
        reached: set[int] = set().union(*(result.reached for result in results))
        unreached = {parameter for number, parameter in enumerate(parameters) if number not in reached}
        if not any(result.rows for result in results) or not unreached:
            return
        named = self.model.named_parameters()
        names = [_plain_name(name) for name, parameter in named if parameter in unreached]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        cause = "look for .detach() or torch.no_grad() in `forward`"
        if _uses_checkpoints(self.model):
            cause = (
                "the likely cause is reentrant gradient checkpointing of a part whose inputs need no gradient: write "
                "checkpoint(..., use_reentrant=False), in transformers gradient_checkpointing_kwargs="
                '{"use_reentrant": False}'
            )
        self.warn_once(
            "unreached",
            f"{len(names)} of {len(parameters)} trainable parameters received no gradient in any batch: "
            f"{', '.join(names[:3])}{more}. They count as zeros, which is right for parts of the model that the loss "
            f"does not use; otherwise {cause}.",
        )

    def _assemble(
        self,
        name: Rescale,
        results: list[BatchResult],
        others: list[BatchResult],
        parameters: Sequence[nn.Parameter],
        at_least: int,
        ranks: Ranks | None,
    ) -> Gradients:
        """The usable rows of one re-scaling; a warning names the problem of the others."""
        first, second = ([result for result in part if name not in result.problems] for part in (results, others))
        problems, of_second = (
            [result.problems[name] for result in part if name in result.problems] for part in (results, others)
        )
        num_first = len(first)
        if ranks is not None and self.shards is None:  # with shards every rank has a part of each batch
            found = ranks.gather((num_first, problems))
            num_first, problems = sum(num for num, _ in found), [problem for _, some in found for problem in some]
        if num_first < at_least or (others and not second):
            by_size = num_first + sum(not problem.is_size for problem in problems)
            by_size_second = len(second) + sum(not problem.is_size for problem in of_second)
            equal = by_size >= at_least and (not others or by_size_second > 0)  # enough, if their losses differed
            raise _too_few_batches(name, num_first, len(second), at_least, [*problems, *of_second], equal)
        problems += of_second
        if problems:
            num_all = num_first + len(second) + len(problems)
            skipped = f"{len(problems)} of {num_all} batches skipped with rescale={name!r}"
            self.warn_once(f"skipped with {name}", f"{skipped}: {problems[0].value}.")
        kept = [*first, *second]
        rows = tuple(result.rows[backward_pass(name)] for result in kept)
        length = sum(map(num_values, parameters))
        if isinstance(self.memory, Sketch) and is_reduced(self.memory, length):
            sizes: tuple[int, ...] = (self.memory.size,) * num_sketches(parameters)
        else:
            local = parameters if self.shards is None else map(local_shard, parameters)
            sizes = tuple(map(num_values, local))
        return Gradients(
            rows=rows,
            scales=tuple(result.scales.get(name, 1.0) for result in kept),
            sizes=sizes,
            split=len(first),
            num_samples=tuple(result.num_samples for result in kept),
            losses=tuple(float(result.losses.mean()) for result in kept),
            length=length,
        )


@dataclass
class BatchResult:
    """The losses of a batch, and for each re-scaling a gradient and its scale, or the problem with it."""

    losses: Tensor  # (m,), or (1,) for a batch loss
    num_samples: int  # 0 if unknown
    rows: dict[str, Row] = field(default_factory=dict)  # by backward pass
    scales: dict[Rescale, float] = field(default_factory=dict)
    problems: dict[Rescale, BatchProblem] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)  # the numbers of the parameters that received a gradient

    def divide(self, name: Rescale, by: float, problem: BatchProblem) -> None:
        """Divide the row of this re-scaling; a division by zero is recorded as `problem`."""
        if by == 0.0:
            self.problems[name] = problem
        else:
            self.scales[name] = 1.0 / by


class WithParameters(nn.Module):
    """Runs functions while `modules` have other parameters."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, function: Callable[[], Result]) -> Result:
        """Call `function`."""
        return function()

    def run(self, function: Callable[[], Result], values: dict[str, Tensor]) -> Result:
        """Call `function` while the parameters have these values, keyed by the names of `named_parameters`."""
        result: Result = functional_call(self, values, (function,))
        return result


def gradient(losses: Tensor, weights: Tensor, parameters: Sequence[nn.Parameter], *, keep_graph: bool) -> Row:
    """The gradient of the sum of `weights` * `losses`, one tensor per parameter; None if a parameter takes no part."""
    keep_freed_memory()
    parts = derivatives(losses, parameters, weights.to(losses), keep_graph=keep_graph)
    if all(part is None for part in parts):
        raise LossError(
            "The loss should depend on the model's parameters. Found one in which no trainable parameter takes part. "
            "Check that the loss is computed from this model's output."
        )
    return tuple(None if part is None else as_real(part) for part in parts)


def derivatives(
    losses: Tensor, inputs: Sequence[Any], weights: Tensor | None = None, *, keep_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad`, with None for inputs that take no part. Nothing is written to `.grad`."""
    try:
        found = torch.autograd.grad(losses, inputs, weights, retain_graph=keep_graph, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():  # torch has no class for it
            raise
        raise LossError(REENTRANT) from error
    # torch raises only if an input lies upstream of the checkpoint; parameters inside silently get None.
    if any(part is None for part in found) and _has_reentrant_checkpoint(losses):
        raise LossError(REENTRANT)
    return found


def _has_reentrant_checkpoint(losses: Tensor) -> bool:
    """True if `torch.utils.checkpoint.checkpoint(use_reentrant=True)` takes part in these losses."""
    seen: set[Any] = set()
    waiting: list[Any] = [losses.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if type(node).__name__ == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)
    return False


def _uses_checkpoints(model: nn.Module) -> bool:
    """True if parts of a model are checkpointed: a flag of transformers, or a call of `checkpoint` in a `forward`.

    Reentrant checkpointing leaves no trace in the graph if no input of the part needs a gradient.
    """
    names = {
        name
        for module in model.modules()
        for name in getattr(getattr(module.forward, "__code__", None), "co_names", ())
    }
    flagged = any(getattr(module, "gradient_checkpointing", False) is True for module in model.modules())
    return flagged or bool(names & {"checkpoint", "checkpoint_sequential"})


def _plain_name(name: str) -> str:
    """The name of a parameter without what torch.compile adds to it."""
    return name.removeprefix("_orig_mod.")


def _is_in_layer(name: str, pattern: str) -> bool:
    """True if a parameter, or a module that contains it, has a name that matches the pattern."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[: end + 1]), pattern) for end in range(len(parts)))


def _as_patterns(layers: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The argument `layers` as a tuple of names and patterns; None for the whole model."""
    if layers is None or isinstance(layers, str):
        return None if layers is None else (layers,)
    if not isinstance(layers, Sequence) or not layers or not all(isinstance(each, str) for each in layers):
        raise ArgumentError(
            "Parameter `layers` should be the name of a module or parameter, or a list of names. Found `layers = "
            f'{short_repr(layers)}`. Names are those of model.named_parameters(), as in layers="encoder.layers.3".'
        )
    return tuple(layers)


@cache
def keep_freed_memory() -> None:
    """Free one large block, once.

    The C library returns freed memory to the system until it has seen a large block freed; from then on it keeps up to
    64 MB. Without this every backward pass of a small network pays for new pages, a quarter of its time.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)


def _too_few_batches(
    name: Rescale, first: int, second: int, at_least: int, problems: list[BatchProblem], equal: bool = False
) -> BatchesError:
    others = " and at least 1 to compare them with" if first >= at_least else ""
    skipped = f"; {len(problems)} skipped, one because {problems[0].value}" if problems else ""
    if BatchProblem.NOT_POSITIVE in problems:
        return NotPositiveError(
            f"The mean loss of at least {at_least} batches should be positive with rescale={name!r}. Found "
            f'{first + second}{skipped}. Use rescale="grad_std", or add a constant to the loss.'
        )
    if equal:
        remedy = "Is the loss a constant? Or does the model fit these batches exactly? Then nothing is left to measure."
    elif BatchProblem.SINGLE_SAMPLE in problems:
        remedy = (
            'For batches of one sample use GradientDisparity(rescale="pooled_std") with 20 batches, as the paper does; '
            "otherwise use larger batches."
        )
    else:
        remedy = "Give more batches: a smaller batch size makes more of the same data."
    return (NoSpreadError if equal else BatchesError)(
        f"At least {at_least} batches{others} should be usable with rescale={name!r}. "
        f"Found {first + second}{skipped}. {remedy}"
    )
