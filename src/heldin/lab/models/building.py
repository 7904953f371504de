"""A model by its name, with its initial weights."""

from __future__ import annotations

import math

import torch
from torch import nn

from heldin.errors import ArgumentError, require_choice
from heldin.lab.models.alexnet import alexnet, scaled_width
from heldin.lab.models.fully_connected import fully_connected
from heldin.lab.models.mrnet import mrnet
from heldin.lab.models.resnet import resnet
from heldin.lab.models.vgg import vgg

WIDTH = 500  # of each hidden layer of the fully connected network, at scale 1
SHAPES = {"alexnet": (1, 28, 28), "vgg": (3, 32, 32), "resnet": (3, 32, 32)}


def build(
    name: str, shape: tuple[int, ...], num_classes: int, *, scale: float = 1.0, init: str = "default"
) -> nn.Module:
    """The model for samples of this shape; its weights are drawn from torch's global stream."""
    family, depth = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz_")
    expected = SHAPES.get(family)
    if expected is not None and tuple(shape) != expected:
        raise ArgumentError(
            f"The model {name!r} takes samples of shape {expected}. Found shape {tuple(shape)}. "
            "Choose another dataset, or model='fully_connected', which takes any shape."
        )
    model: nn.Module
    if family == "fully_connected":
        model = fully_connected(math.prod(shape), num_classes, width=scaled_width(WIDTH, scale))
    elif family == "alexnet":
        model = alexnet(num_classes, scale=scale)
    elif family == "vgg":
        model = vgg(int(depth), num_classes, scale=scale)
    elif family == "resnet":
        model = resnet(int(depth), num_classes, scale=scale)
    else:
        require_choice("model", name, ("mrnet",))
        if len(shape) != 4 or shape[1] != 3:
            raise ArgumentError(
                f"The model 'mrnet' takes exams of shape (slices, 3, h, w). Found shape {tuple(shape)}. "
                "Choose the dataset mrnet, or another model."
            )
        model = mrnet(num_classes, scale=scale)
    initialize(model, init)
    return model


@torch.no_grad()
def initialize(model: nn.Module, init: str) -> None:
    """Draw the weights of linear and convolutional layers anew, biases zero; `"default"` leaves torch's own."""
    require_choice("init", init, ("default", "he_normal", "xavier_uniform"))
    if init == "default":
        return
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            if init == "he_normal":
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
