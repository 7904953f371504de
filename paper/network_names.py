"""Datasets and networks in words."""

from __future__ import annotations

import re
from fractions import Fraction

from heldin.lab.spec import RunSpec

NAMES = {
    "mnist": "MNIST",
    "mnist5k": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "alexnet": "AlexNet",
    "cnn_batchnorm": "CNN",
    "vgg": "VGG",
    "resnet": "ResNet",
}


def network_title(spec: RunSpec) -> str:
    """Return dataset and network in words.

    Example:
        >>> network_title(RunSpec(dataset="npz:cifar10-2k", model="vgg8"))
        'CIFAR-10, VGG-8'
    """
    dataset = spec.dataset.removeprefix("npz:").partition("-")[0]
    return f"{NAMES.get(dataset, dataset)}, {model_title(spec)}"


def model_title(spec: RunSpec) -> str:
    """Return the network in words."""
    kind, depth = re.sub(r"\d+$", "", spec.model), re.search(r"\d+$", spec.model)
    return NAMES.get(kind, kind.replace("_", " ")) + (f"-{depth[0]}" if depth else "")


def scaled_title(spec: RunSpec) -> str:
    """Return the network in words, with its width if that is not the original one.

    Example:
        >>> scaled_title(RunSpec(model="vgg8", scale=0.25))
        'VGG-8, width 1/4'
    """
    return model_title(spec) + ("" if spec.scale == 1 else f", width {Fraction(spec.scale).limit_denominator(100)}")
