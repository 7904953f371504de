"""Registries of models, initial weights, losses and optimizers.

A spec accepts the keys of these dictionaries, so its names and the builders cannot disagree. One more entry is one more
row here; a model also has its file in `models/`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn, optim
from torch.nn import functional as F

from heldin.errors import ArgumentError, near_match, require_choice, short_repr
from heldin.lab.models.alexnet import alexnet, scaled_width
from heldin.lab.models.cnn import cnn
from heldin.lab.models.fully_connected import fully_connected
from heldin.lab.models.lenet import lenet
from heldin.lab.models.mrnet import mrnet
from heldin.lab.models.resnet import resnet
from heldin.lab.models.vgg import vgg

ModelBuilder: TypeAlias = Callable[[tuple[int, ...], int, float], nn.Module]
"""From the shape of one sample, the number of classes and the scale to a model."""

USER_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # `package.module:function`: a `ModelBuilder` of the user's


class ModelEntry(NamedTuple):
    """How a model is built, and the shape of the samples it takes: a string stands for any size, None for any shape."""

    build: ModelBuilder
    shape: tuple[int | str, ...] | None = None


class OneHotMSE(nn.Module):
    """Mean squared error of the outputs against one-hot targets."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Outputs (m, C) and classes (m,) -> a number, or (m,) with reduction="none"."""
        losses = (output - F.one_hot(target, output.shape[1]).to(output.dtype)).square().mean(1)
        return losses if self.reduction == "none" else losses.mean()


def _without_shape(build: Callable[..., nn.Module], *depth: int) -> ModelBuilder:
    """The builder of a network whose input shape is fixed."""
    return lambda _, num_classes, scale: build(*depth, num_classes, scale=scale)


def _mlp(**options: Any) -> ModelEntry:
    """Two hidden layers of 256 units, for any samples."""
    return ModelEntry(
        lambda shape, num_classes, scale: fully_connected(
            math.prod(shape), num_classes, depth=2, width=scaled_width(256, scale), **options
        )
    )


def _cnn(**options: Any) -> ModelEntry:
    return ModelEntry(
        lambda shape, num_classes, scale: cnn(shape, num_classes, scale=scale, **options), ("channels", "h", "w")
    )


def _resnet(depth: int) -> ModelEntry:
    return ModelEntry(
        lambda shape, num_classes, scale: resnet(depth, num_classes, scale=scale, shape=shape), ("channels", "h", "w")
    )


MODELS: dict[str, ModelEntry] = {
    "fully_connected": ModelEntry(
        lambda shape, num_classes, scale: fully_connected(math.prod(shape), num_classes, width=scaled_width(500, scale))
    ),
    "mlp": _mlp(),
    "mlp_batchnorm": _mlp(batch_norm=True),
    "mlp_dropout": _mlp(dropout=0.5),
    "cnn": _cnn(),
    "cnn_batchnorm": _cnn(batch_norm=True),
    "cnn_dropout": _cnn(dropout=0.5),
    "lenet": ModelEntry(
        lambda shape, num_classes, scale: lenet(shape, num_classes, scale=scale), ("channels", "h", "w")
    ),
    "alexnet": ModelEntry(_without_shape(alexnet), (1, 28, 28)),
    **{f"vgg{depth}": ModelEntry(_without_shape(vgg, depth), (3, 32, 32)) for depth in (8, 11, 13, 16, 19)},
    **{f"resnet{depth}": _resnet(depth) for depth in (8, 14, 18, 20, 34)},
    "mrnet": ModelEntry(_without_shape(mrnet), ("slices", 3, "h", "w")),
}

INITS: dict[str, Callable[[Tensor], object] | None] = {
    "default": None,  # those of torch
    "he_normal": partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    "xavier_uniform": nn.init.xavier_uniform_,
}

LOSSES: dict[str, Callable[[], nn.Module]] = {"cross_entropy": nn.CrossEntropyLoss, "mse": OneHotMSE}

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {  # called with parameters, lr and weight_decay
    "sgd": optim.SGD,
    "momentum": partial(optim.SGD, momentum=0.9),
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "rmsprop": optim.RMSprop,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
}

TORCH_OPTIMIZERS: dict[str, type[optim.Optimizer]] = {  # by the name of their class
    name: kind
    for name, kind in vars(optim).items()
    if isinstance(kind, type) and issubclass(kind, optim.Optimizer) and kind is not optim.Optimizer
    if name not in ("LBFGS", "SparseAdam")  # the first evaluates the loss by itself, the other needs sparse gradients
}
SCHEDULERS: dict[str, Callable[..., Any]] = {
    name: kind
    for name, kind in vars(optim.lr_scheduler).items()
    if isinstance(kind, type) and issubclass(kind, optim.lr_scheduler.LRScheduler) and not name.endswith("LRScheduler")
    if name not in ("ChainedScheduler", "SequentialLR", "LambdaLR", "MultiplicativeLR")  # made of objects
}


def check_optimizer(name: str, options: Sequence[str], *, weight_decay: float = 0.0) -> None:
    """Refuse an optimizer that does not exist, or options that it does not take."""
    require_choice("optimizer", name, [*OPTIMIZERS, *TORCH_OPTIMIZERS])
    kind = OPTIMIZERS[name] if name in OPTIMIZERS else TORCH_OPTIMIZERS[name]
    given = _parse_options("optimizer_options", options)
    if "lr" in given:
        raise ArgumentError(
            f"The learning rate is a separate field. Found `optimizer_options = {list(options)}`. "
            f"Set `learning_rate = {given['lr']}` instead."
        )
    known = _options_of(kind)
    _require_options(name, given, known)
    if weight_decay and "weight_decay" not in known:
        raise ArgumentError(
            f"The optimizer {name!r} has no weight decay. Found `weight_decay = {weight_decay:g}`. Set it to 0."
        )


def build_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    options: Sequence[str] = (),
) -> optim.Optimizer:
    """Build an optimizer; a weight decay in `options` replaces `weight_decay`."""
    check_optimizer(name, options, weight_decay=weight_decay)
    kind = OPTIMIZERS[name] if name in OPTIMIZERS else TORCH_OPTIMIZERS[name]
    given = _parse_options("optimizer_options", options)
    decay = {"weight_decay": weight_decay} if "weight_decay" in _options_of(kind) else {}
    try:
        return kind(parameters, **{"lr": learning_rate, **decay, **given})
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"The optimizer {name!r} cannot be made from these options: {error}") from error


def check_scheduler(name: str | None, options: Sequence[str]) -> None:
    """Refuse a scheduler that does not exist, or options that it does not take."""
    if name is None:
        if options:
            raise ArgumentError(f"A scheduler should be given with its options. Found {list(options)} without one.")
        return
    require_choice("scheduler", name, SCHEDULERS)
    _require_options(name, _parse_options("scheduler_options", options), _options_of(SCHEDULERS[name]))


def build_scheduler(name: str | None, optimizer: optim.Optimizer, options: Sequence[str] = ()) -> Any:
    """Build a scheduler of the learning rate; None without a name."""
    check_scheduler(name, options)
    if name is None:
        return None
    try:
        return SCHEDULERS[name](optimizer, **_parse_options("scheduler_options", options))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f'The scheduler {name!r} cannot be made from these options: {error}. Options are given as "step_size=20".'
        ) from error


def _options_of(kind: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name not in ("self", "params", "lr", "optimizer")]


def _require_options(name: str, given: Iterable[str], known: Sequence[str]) -> None:
    for option in given:
        if option not in known:
            raise ArgumentError(
                f"{name!r} takes the options {', '.join(known)}. Found {option!r}.{near_match(option, known)}"
            )


def _parse_options(field: str, options: Sequence[str]) -> dict[str, Any]:
    """The values of options such as "betas=(0.9, 0.99)"; a text that is not a Python value is taken as it is."""
    found: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=") if isinstance(option, str) else ("", "", "")
        name = name.strip()
        if not equals or not name.isidentifier() or name in found:
            raise ArgumentError(
                f'Parameter `{field}` should have one text "name=value" for each option. Found {short_repr(option)}.'
            )
        try:
            found[name] = ast.literal_eval(text.strip())
        except (SyntaxError, ValueError):
            found[name] = text.strip()
    return found


def build_model(
    name: str, shape: tuple[int, ...], num_classes: int, *, scale: float = 1.0, init: str = "default"
) -> nn.Module:
    """Build a model for samples of this shape; its weights are drawn from torch's global random stream."""
    entry = find_model(name)
    if entry.shape is not None and not _fits(shape, entry.shape):
        raise ArgumentError(
            f"The model {name!r} takes samples of shape {_format_shape(entry.shape)}. "
            f"Found shape {_format_shape(shape)}. "
            "Choose another dataset, or model='fully_connected', which takes any shape."
        )
    require_choice("init", init, INITS)
    model = entry.build(tuple(shape), num_classes, scale)
    if (draw := INITS[init]) is not None:
        for module in model.modules():  # linear and convolutional layers; their biases become zero
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                draw(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    return model


def find_model(name: str) -> ModelEntry:
    """Return the entry of a model: a name in `MODELS`, or `package.module:function`."""
    if name in MODELS or not USER_MODEL.fullmatch(name):
        require_choice("model", name, MODELS)
        return MODELS[name]
    module, function = name.split(":")
    try:
        build: ModelBuilder = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(
            f"Parameter `model` should name a function as package.module:function. Found `model = {name!r}`: {error}. "
            "Install the package, or add its folder to PYTHONPATH."
        ) from error
    return ModelEntry(build)


def _fits(shape: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    sizes = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size == found or isinstance(size, str) for found, size in sizes)


def _format_shape(shape: Iterable[int | str]) -> str:
    sizes = [*map(str, shape)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
