"""Registries of models, initial weights, losses and optimizers.

A spec accepts the keys of these dictionaries, so its names and the builders cannot disagree. One more entry is one more
row here; a model also has its file in `models/`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn, optim
from torch.nn import functional as F

from heldin.errors import ArgumentError, require_choice
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
    **{f"resnet{depth}": ModelEntry(_without_shape(resnet, depth), (3, 32, 32)) for depth in (8, 14, 18, 20, 34)},
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
