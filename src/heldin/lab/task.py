"""A task: model, loss, optimizer and data of a user's; what a function may return as one, and how it is checked.

Every mistake is refused before anything is trained or written. Inputs of a `TensorDataset` are held in memory; those of
another dataset are read each time they are needed, so that its transforms run.
"""

from __future__ import annotations

import hashlib
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from heldin.errors import ArgumentError, HeldinError, near_match, require_integer, short_repr
from heldin.lab.data import Arrays, Items, Samples
from heldin.lab.measurements import Measurements
from heldin.lab.run import Parts
from heldin.lab.samples import Split
from heldin.lab.spec import DEFAULT_SIGNALS, RunSpec
from heldin.probing.isolation import seeded_randomness
from heldin.probing.losses import LossFunction, unreduced

REQUIRED = ("model", "loss", "optimizer", "train")
READ_AT_ONCE = 256  # samples
NUM_READ_TWICE = 32  # samples; a flip with probability 1/2 changes one of them, except once in 2**32 tasks
MAX_TRIED = 64  # samples of the batch on which a task is tried


@dataclass(frozen=True, eq=False)
class Task:
    """What a task returns: everything that a training run needs.

    Args:
        model: a new model; its outputs are one row of class scores per sample.
        loss: the loss of these outputs and of classes, such as `nn.CrossEntropyLoss()`.
        optimizer: of the parameters of this model.
        train: the training data: a `Dataset` of pairs (input, class), with your own transforms.
        test: the test data; None if there is none.
        scheduler: of this optimizer; it takes a step after each epoch.
        epochs: the horizon: how long to train.
        batch_size: of training and of measuring.
        unaugmented: the samples of `train` in the same order, without random transforms: a fold that is left out is
            evaluated on them. None if `train` has no random transforms.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from heldin.lab import Task
        >>> def task():
        ...     model = nn.Linear(4, 3)
        ...     x = torch.arange(80.0).reshape(20, 4)
        ...     data = torch.utils.data.TensorDataset(x, torch.arange(20) % 3)
        ...     optimizer = torch.optim.Adam(model.parameters())
        ...     return Task(model, nn.CrossEntropyLoss(), optimizer, train=data, batch_size=4)
    """

    model: nn.Module
    loss: LossFunction
    optimizer: Optimizer
    train: Dataset[Any]
    test: Dataset[Any] | None = None
    scheduler: Any = None
    epochs: int = 50
    batch_size: int = 32
    unaugmented: Dataset[Any] | None = None


def as_task(returned: Any, where: str) -> Task:
    """A `Task` from what a function returned: a `Task`, a dict, or an object with these attributes."""
    known = [field.name for field in fields(Task)]
    if isinstance(returned, Mapping):
        for key in returned:
            if key not in known:
                raise ArgumentError(
                    f"{where} should return {', '.join(known)}. Found {key!r} among them.{near_match(str(key), known)}"
                )
        values = dict(returned)
    elif isinstance(returned, (tuple, list)) or returned is None:
        raise ArgumentError(
            f"{where} should return a heldin.lab.Task, or a dict with {', '.join(REQUIRED)}. Found "
            f"{_kind_of(returned)}. Write return Task(model=..., loss=..., optimizer=..., train=..., test=...)."
        )
    else:
        values = {name: getattr(returned, name) for name in known if hasattr(returned, name)}
    lacking = [name for name in REQUIRED if values.get(name) is None]
    if lacking:
        raise ArgumentError(
            f"{where} should return {', '.join(REQUIRED)}. Found no {' and no '.join(lacking)}. "
            "Write return Task(model=..., loss=..., optimizer=..., train=..., test=...)."
        )
    task = Task(**values)
    _check_task(task, where)
    return task


def _check_task(task: Task, where: str) -> None:
    if not isinstance(task.model, nn.Module):
        raise ArgumentError(f"`model` of {where} should be a torch.nn.Module. Found {_kind_of(task.model)}.")
    unreduced(task.loss)  # refuses a class, and what cannot be called
    if not isinstance(task.optimizer, Optimizer) or isinstance(task.optimizer, LBFGS):
        raise ArgumentError(
            f"`optimizer` of {where} should be an optimizer of torch, other than LBFGS, which evaluates the loss by "
            f"itself. Found {_kind_of(task.optimizer)}."
        )
    mine = {id(parameter) for parameter in task.model.parameters()}
    trained = [parameter for group in task.optimizer.param_groups for parameter in group["params"]]
    foreign = sum(id(parameter) not in mine for parameter in trained)
    if foreign or not trained:
        raise ArgumentError(
            f"`optimizer` of {where} should train the parameters of its `model`. Found {foreign} of {len(trained)} "
            "that belong to another. Create it after the model, from model.parameters()."
        )
    if task.scheduler is not None and getattr(task.scheduler, "optimizer", None) is not task.optimizer:
        raise ArgumentError(
            f"`scheduler` of {where} should be a scheduler of its `optimizer`. Found "
            f"{_kind_of(task.scheduler)}. Create it from that optimizer, after it."
        )
    for name in ("train", "test", "unaugmented"):
        _check_dataset(getattr(task, name), f"`{name}` of {where}")
    require_integer("epochs", task.epochs, at_least=1, remedy="It is the number of epochs to train.", of=where)
    require_integer("batch_size", task.batch_size, at_least=1, remedy="32 is a good choice.", of=where)


def _check_dataset(dataset: Any, where: str) -> None:
    if dataset is None:
        return
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ArgumentError(
            f"{where} should be a Dataset, since batches and folds are drawn here. Found a DataLoader. Pass its "
            "dataset: loader.dataset."
        )
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ArgumentError(
            f"{where} should be a Dataset with __len__ and __getitem__, since folds need the samples by their number. "
            f"Found {_kind_of(dataset)}. Read it into a list or a TensorDataset first."
        )
    if len(dataset) == 0:
        raise ArgumentError(f"{where} should have samples. Found none. Check the path and the split.")


def parts_of(task: Task) -> Parts:
    """What is trained, without the data."""
    return Parts(task.model, task.loss, task.optimizer, task.scheduler)


def read_data(task: Task, where: str) -> tuple[Arrays, str]:
    """Read the data of a task once: its arrays, and the fingerprint of all samples and labels."""
    digest = hashlib.sha256()
    with seeded_randomness(0, task.train, task.test, task.unaugmented):  # the same transforms each time
        x_train, y_train = _read(task.train, f"`train` of {where}", digest)
        x_test, y_test = x_train, y_train[:0]
        if task.test is not None:
            x_test, y_test = _read(task.test, f"`test` of {where}", digest)
        plain = None
        if task.unaugmented is not None:
            plain, labels = _read(task.unaugmented, f"`unaugmented` of {where}", digest)
            if not torch.equal(labels, y_train):
                raise ArgumentError(
                    f"`unaugmented` of {where} should hold the samples of `train` in the same order. Found other "
                    "labels."
                )
    if x_test.shape[1:] != x_train.shape[1:]:
        raise ArgumentError(
            f"Training and test samples of {where} should have one shape. Found {tuple(x_train.shape[1:])} and "
            f"{tuple(x_test.shape[1:])}."
        )
    if task.test is None:
        x_test = x_train[:0] if isinstance(x_train, Tensor) else x_train.select(torch.arange(0))
    num_classes = _num_classes(task, x_train, torch.cat([y_train, y_test]), where)
    data = f"{len(y_train)}+{len(y_test)}-{digest.hexdigest()[:16]}"
    return Arrays(where, x_train, y_train, x_test, y_test, num_classes, plain), data


def _read(dataset: Any, where: str, digest: Any) -> tuple[Samples, Tensor]:
    """All inputs and labels of a dataset; inputs of a `TensorDataset` in memory, others are read again when needed."""
    stored = _stored_tensors(dataset)
    parts: list[Tensor] = []
    labels: list[Tensor] = []
    for start in range(0, len(dataset), READ_AT_ONCE):
        pairs = [_pair(dataset, index, where) for index in range(start, min(start + READ_AT_ONCE, len(dataset)))]
        shapes = {tuple(x.shape) for x, _ in pairs} | ({tuple(parts[0].shape[1:])} if parts else set())
        if len(shapes) > 1:
            raise ArgumentError(
                f"All inputs in {where} should have one shape. Found {' and '.join(map(str, sorted(shapes)))}. "
                "Resize or crop them in a transform."
            )
        inputs = torch.stack([x for x, _ in pairs])
        digest.update(f"{inputs.dtype}{tuple(inputs.shape)}".encode())
        digest.update(inputs.contiguous().view(-1).view(torch.uint8).numpy().data)
        parts.append(inputs if stored is not None else inputs[:1])
        labels.append(torch.tensor([y for _, y in pairs]))
    found = torch.cat(labels)
    digest.update(found.numpy().data)
    return (torch.cat(parts) if stored is not None else Items(dataset, parts[0].shape[1:])), found


def is_read_at_random(task: Task, where: str) -> bool:
    """Whether inputs of `train` differ when they are read again: it has random transforms."""
    if _stored_tensors(task.train) is not None:
        return False
    read = []
    for seed in (0, 1):
        with seeded_randomness(seed, task.train):
            chosen = range(min(NUM_READ_TWICE, len(task.train)))  # type: ignore[arg-type]
            read.append([_pair(task.train, index, f"`train` of {where}")[0] for index in chosen])
    return not all(map(torch.equal, *read))


def _stored_tensors(dataset: Any) -> tuple[Tensor, ...] | None:
    """The tensors of a `TensorDataset`, or of a `Subset` of one; None for a dataset with its own code."""
    if type(dataset) is Subset:
        return _stored_tensors(dataset.dataset)
    return dataset.tensors if type(dataset) is TensorDataset else None


def _pair(dataset: Any, index: int, where: str) -> tuple[Tensor, int]:
    try:
        item = dataset[index]
    except Exception as error:
        raise ArgumentError(f"Sample {index} of {where} cannot be read: {describe_error(error)}") from error
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise ArgumentError(
            f"{where} should give pairs (input, class). Found {_kind_of(item)} at index {index}. "
            "Return input and class from __getitem__."
        )
    x, y = item
    try:
        inputs = torch.as_tensor(x)
        label = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{where} should give a tensor and a class number. Found {_kind_of(item)} at index {index}. "
            "Convert the input in a transform, such as ToTensor()."
        ) from error
    if label.numel() != 1 or label.dtype.is_floating_point or label.dtype == torch.bool or label.is_complex():
        raise ArgumentError(
            f"{where} should give class numbers 0, 1, 2, ... as labels. Found {_kind_of(y)} at index {index}. "
            "Targets that are not classes are not supported: regression cannot be compared here."
        )
    return inputs.detach().cpu(), int(label)


def _num_classes(task: Task, x: Samples, y: Tensor, where: str) -> int:
    """The number of classes: the width of the model's outputs. Labels beyond it are refused."""
    was_training = task.model.training
    task.model.eval()
    try:
        with torch.no_grad():
            outputs = task.model(x[:2])
    except Exception as error:
        raise ArgumentError(
            f"The model of {where} should take a batch of inputs of shape {tuple(x.shape[1:])}. It failed: "
            f"{describe_error(error)}"
        ) from error
    finally:
        task.model.train(was_training)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
        raise ArgumentError(
            f"The model of {where} should return class scores of shape (m, classes), with at least 2 classes. Found "
            f"{_kind_of(outputs)}. For two classes use two outputs and nn.CrossEntropyLoss()."
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= outputs.shape[1]:
        raise ArgumentError(
            f"Labels of {where} should be from 0 to {outputs.shape[1] - 1}, since the model has {outputs.shape[1]} "
            f"outputs. Found {low} to {high}. Renumber the classes, or change the last layer."
        )
    return int(outputs.shape[1])


def try_step(task: Task, arrays: Arrays, where: str) -> None:
    """Refuse a task that cannot take one step of training. Its weights change, so it is not used afterwards."""
    num = min(task.batch_size, MAX_TRIED, len(arrays.y_train))
    x, y = arrays.x_train[:num], arrays.y_train[:num]
    task.model.train()
    try:
        outputs = task.model(x)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using a target size")  # such a loss is refused here
            loss = task.loss(outputs, y)
            losses = unreduced(task.loss)(outputs, y)
    except HeldinError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"The loss of {where} should take outputs of shape {(num, arrays.num_classes)} and {num} class numbers. It "
            f"failed: {describe_error(error)} Use a loss of classes, such as nn.CrossEntropyLoss()."
        ) from error
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not bool(torch.isfinite(loss).all()):
        raise ArgumentError(
            f"The loss of {where} should be one finite number. Found {_kind_of(loss)} on the first batch."
        )
    if not isinstance(losses, Tensor) or losses.shape != (num,):
        raise ArgumentError(
            f"The loss of {where} should have a `reduction`, so that it gives one value per sample. Found "
            f"{_kind_of(losses)} for {num} samples without it."
        )
    try:
        task.optimizer.zero_grad()
        torch.autograd.backward(loss)
        task.optimizer.step()
    except Exception as error:
        raise ArgumentError(f"A step of training of {where} failed: {describe_error(error)}") from error


def measurable_signals(spec: RunSpec, parts: Parts, split: Split) -> tuple[tuple[str, ...], list[str]]:
    """The signals that can be measured on this task, and a sentence for each that cannot."""
    found: list[str] = []
    left_out: list[str] = []
    outputs = torch.zeros(len(split.y_train), split.num_classes)
    outputs[torch.arange(len(split.y_train)), split.y_train] = 1.0
    for label in DEFAULT_SIGNALS:
        try:
            one = spec.with_(signals=(label,))
            Measurements(one, parts.model, parts.loss, parts.optimizer).read(0, split, outputs)
            found.append(label)
        except HeldinError as error:
            left_out.append(f"{label} ({str(error).rstrip('.')})")
    if not found:
        raise ArgumentError(f"At least one signal should be measurable. Found none: {left_out[0]}.")
    return tuple(found), left_out


def describe_error(error: BaseException) -> str:
    """The type, the message and the place of an error in the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_user(frame.filename)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        text = (error.text or "").strip()
        place = f" (line {error.lineno}{text and f': {text}'})"
    message = str(error.msg if isinstance(error, SyntaxError) else error).strip().rstrip(".").partition("\n")[0]
    return f"{type(error).__name__}: {message}{place}." if message else f"{type(error).__name__}{place}."


def _is_of_user(filename: str) -> bool:
    parts = Path(filename).parts
    library = Path(__file__).resolve().parent.parent
    return not filename.startswith("<") and "site-packages" not in parts and library not in Path(filename).parents


def _kind_of(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)) and len(value) <= 4:
        return f"a {type(value).__name__} of {len(value)}: " + ", ".join(map(_kind_of, value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return short_repr(value)
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list, dict)) else "")
