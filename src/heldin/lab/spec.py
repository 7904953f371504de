"""RunSpec: the complete description of one training run.

A spec is frozen. Its canonical JSON is its identity: the hash of it is the run's id. It holds nothing that does not
change the result (no path, no device, no number of workers), and everything random follows from `seed`. Fields that
were added later are left out of the JSON while they have their default, so that ids of earlier runs stay the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from heldin.errors import ArgumentError, near_match, require_choice, require_integer, require_number, short_repr

if TYPE_CHECKING:
    from heldin.signals import Signal

DEFAULT_SIGNALS = (
    "gradient_disparity",
    "gradient_disparity[rescale=std_detached]",
    "gradient_disparity[rescale=none]",
    "gradient_disparity@fixed",
    "gradient_disparity[rescale=std_detached]@fixed",
    "gradient_disparity[rescale=none]@fixed",
    "gradient_variance",
    "inner_product",
    "sign",
    "cosine",
    "gradient_confusion",
    "noise_scale",
    "label_wave",
    "gwa",
)
"""All signals that follow from batch gradients and from the training pass itself."""

ADDED_FIELDS = ("num_test", "detailed_readings", "optimizer_options", "scheduler", "scheduler_options")
"""Fields that are left out of the JSON while they have their default."""

MAX_RUNS = 10_000  # of one command
MAX_NAME_BYTES = 200
MAX_TOML_BYTES = 1_000_000

LIST_FIELDS = ("signals", "optimizer_options", "scheduler_options")
"""Fields that hold several texts."""

TASK = "task"  # the model, loss and optimizer of a spec whose dataset is a task of the user's
OF_TASK = ("model", "optimizer", "loss")
NOT_OF_TASK = (
    "num_samples",
    "label_noise",
    "augment",
    "scale",
    "init",
    "learning_rate",
    "weight_decay",
    "detailed_readings",
    "optimizer_options",
    "scheduler",
    "scheduler_options",
)
"""Fields that say what a task says by itself."""

_TASK_DATASET = re.compile(r"task:(?P<name>[\w.-]+)-(?P<source>[0-9a-f]{8})(?P<data>[0-9a-f]{8})")
_SIGNAL = re.compile(r"(?P<label>[^@]+?)(?P<probes>@fixed|@training)?(@s=(?P<s>[1-9]\d*))?")


class SignalRequest(NamedTuple):
    """A signal of a spec.

    Attributes:
        signal: the signal.
        fixed: whether it is measured on the same batches every time.
        num_batches: the number of batches, if not 5.
        training: whether it is read from the gradients of the last batches of training.
    """

    signal: Signal[Any]
    fixed: bool = False
    num_batches: int | None = None
    training: bool = False


def parse_signal(label: str) -> SignalRequest:
    """Parse a label of a spec.

    `"cosine"` is measured on 5 new batches each epoch, `"cosine@fixed"` on the same 5 every time, `"cosine@s=20"` on
    20 batches, and `"cosine@fixed@s=20"` on the same 20. `"cosine@training"` is read from the gradients of the last 5
    batches of the epoch, as training computed them.
    """
    match = _SIGNAL.fullmatch(label) if isinstance(label, str) and _is_name(label) else None
    if match is None:
        raise ArgumentError(
            "A signal should be a label such as 'cosine', 'cosine@fixed', 'cosine@training' or 'cosine@s=20'. "
            f"Found {short_repr(label)}."
        )
    from heldin.signals import from_label  # imports torch, which the help of the command line does not need

    num_batches = None if match["s"] is None else int(match["s"])
    require_one_label(match["label"])
    if num_batches == 1:
        raise ArgumentError(f"At least 2 batches are needed to compare gradients. Found {label!r}.")
    signal, training = from_label(match["label"]), match["probes"] == "@training"
    if training and (reason := signal.needs.needs_own_passes) is not None:
        raise ArgumentError(f"The signal {label!r} cannot be read from the gradients of training. {reason}")
    return SignalRequest(signal, match["probes"] == "@fixed", num_batches, training)


def require_one_label(name: str, option: str = "--signal") -> None:
    """Refuse several labels in one text; commas inside the brackets of options are allowed."""
    labels = [label.strip() for label in re.sub(r"\[.*?\]", "", name).split(",")]
    if len(labels) > 1:
        raise ArgumentError(
            f"One label should be given at a time. Found {len(labels)} in {short_repr(name)}. Repeat the option, such "
            f"as {option} {labels[0]} {option} {labels[1]}."
        )


@dataclass(frozen=True)
class RunSpec:
    """One training run.

    Args:
        dataset: a name (`heldin data list`), `npz:NAME` for NAME.npz in the data folder, or `task:NAME-HASH` for a task
            of the user's (`heldin.lab.task`), which has its own model, loss and optimizer: those fields are "task".
        num_samples: train on a random subset of this many samples; None takes all.
        label_noise: for this fraction of the samples the label is drawn uniformly from all classes.
        augment: random crops with padding 4 and horizontal flips.
        model: the architecture, or `package.module:function` for your own: it gets the shape of a sample, the number
            of classes and the scale, and returns a module.
        scale: the factor by which all widths are multiplied; 1 is the original.
        init: the initial weights: those of torch, `"he_normal"` or `"xavier_uniform"`.
        optimizer: `"momentum"` is SGD with momentum 0.9; or the name of a class in `torch.optim`, such as `"NAdam"`.
        learning_rate: its learning rate.
        weight_decay: its weight decay.
        loss: `"cross_entropy"`, or `"mse"` against one-hot targets.
        batch_size: of training and of measuring.
        epochs: the horizon. Training never stops before it, except by `until_loss`.
        until_loss: training also ends once the mean training loss of an epoch is below this; None: never.
        fold: train without fold number `fold` (from 0) of `folds`, and validate on it; None trains on all.
        folds: the number of folds that the training data is split into.
        seed: of everything random: subset, noise, folds, initial weights, order, augmentation, batches of signals.
        signals: the signals to measure after every epoch, by label; `@fixed` measures on the same batches every time,
            `@s=20` on 20 batches instead of 5, `@training` reads them from the gradients of the epoch's last batches.
        num_test: evaluate on the first samples of the test set, this many; None takes all, 0 does not evaluate.
        detailed_readings: how many detailed readings (`heldin.lab.recording`) are recorded in each of the first
            epochs; one in each later epoch. 0 records none at all.
        optimizer_options: further arguments of the optimizer, as in `("betas=(0.9, 0.99)", "amsgrad=True")`.
        scheduler: the name of a class in `torch.optim.lr_scheduler`, which takes a step after each epoch; None: the
            learning rate is constant.
        scheduler_options: the arguments of the scheduler, as in `("step_size=20",)`.

    Examples:
        >>> from heldin.lab.spec import RunSpec
        >>> spec = RunSpec(dataset="digits", num_samples=200, label_noise=0.5, epochs=3)
        >>> spec.id == RunSpec(dataset="digits", num_samples=200, label_noise=0.5, epochs=3).id
        True
    """

    dataset: str = "mnist5k"
    num_samples: int | None = None
    label_noise: float = 0.0
    augment: bool = False
    model: str = "fully_connected"
    scale: float = 1.0
    init: str = "default"
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    loss: str = "cross_entropy"
    batch_size: int = 128
    epochs: int = 100
    until_loss: float | None = None
    fold: int | None = None
    folds: int | None = None
    seed: int = 0
    signals: tuple[str, ...] = DEFAULT_SIGNALS
    num_test: int | None = None
    detailed_readings: int = 0
    optimizer_options: tuple[str, ...] = ()
    scheduler: str | None = None
    scheduler_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in LIST_FIELDS:
            if not isinstance(found := getattr(self, name), (list, tuple)):
                what = "labels" if name == "signals" else 'texts "name=value"'
                raise ArgumentError(
                    f"Parameter `{name}` should be a list of {what}. Found `{name} = {short_repr(found)}`. "
                    f"Write [{short_repr(found)}]."
                )
            object.__setattr__(self, name, tuple(found))
        for name in ("label_noise", "scale", "learning_rate", "weight_decay", "until_loss"):  # 1 equals 1.0 in a spec
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
                object.__setattr__(self, name, float(value))
        self._check_data()
        self._check_training()
        for label in self.signals:
            parse_signal(label)
        if len({*self.signals}) < len(self.signals):
            raise ArgumentError(f"Each signal should be given once. Found {list(self.signals)}.")

    def _check_data(self) -> None:
        _require_name("dataset", self.dataset)
        if self.dataset.startswith("task:") and not _TASK_DATASET.fullmatch(self.dataset):
            raise ArgumentError(
                "A task is named by its hash, as in task:digits-0123456789abcdef. Found `dataset = "
                f"{short_repr(self.dataset)}`. `heldin compare task.py` finds the hash."
            )
        if self.dataset.startswith("npz:") and ("/" in self.dataset or "\\" in self.dataset or "npz:~" in self.dataset):
            raise ArgumentError(
                f"Parameter `dataset` should not contain a path. Found `dataset = {self.dataset!r}`. "
                "Give the name of the file only, npz:NAME, and its folder with --data or HELDIN_DATA."
            )
        require_number("label_noise", self.label_noise, at_least=0.0, remedy="0.5 makes half of the labels random.")
        _require_at_most("label_noise", self.label_noise, 1)
        require_integer("batch_size", self.batch_size, at_least=1, remedy="128 is what the paper uses.")
        if self.num_samples is not None:
            require_integer("num_samples", self.num_samples, at_least=2, remedy="Leave it out to use all samples.")
            _require_at_most("batch_size", self.batch_size, self.num_samples, bound_name="num_samples")
        if self.num_test is not None:
            require_integer("num_test", self.num_test, at_least=0, remedy="Leave it out to use all test samples.")
        if (self.fold is None) != (self.folds is None):
            raise ArgumentError(
                f"Give both `fold` and `folds`, or neither. Found `fold = {self.fold}`, `folds = {self.folds}`."
            )
        if self.fold is not None and self.folds is not None:
            require_integer("folds", self.folds, at_least=2, remedy="The paper uses 5 or 10.")
            require_integer("fold", self.fold, at_least=0, remedy="Folds count from 0.")
            if self.fold >= self.folds:
                raise ArgumentError(f"Folds count from 0. Found `fold = {self.fold}` of `folds = {self.folds}`.")
            if self.num_samples is not None:
                _require_at_most("folds", self.folds, self.num_samples, bound_name="num_samples")

    def _check_training(self) -> None:
        if self.task is None:
            self._check_names()
        else:
            self._check_task()
        for name in ("scale", "learning_rate"):
            require_number(name, getattr(self, name), remedy="It should be above 0.")
            if getattr(self, name) <= 0.0:
                raise ArgumentError(f"Parameter `{name}` should be above 0. Found `{name} = {getattr(self, name)}`.")
        require_number("weight_decay", self.weight_decay, at_least=0.0, remedy="0 means none.")
        require_integer("epochs", self.epochs, at_least=1, remedy="Training needs a horizon.")
        if self.until_loss is not None:
            require_number("until_loss", self.until_loss, at_least=0.0, remedy="The paper uses 0.01.")
        require_integer("seed", self.seed, at_least=0, remedy="Seeds count from 0.")
        require_integer("detailed_readings", self.detailed_readings, at_least=0, remedy="0 records none.")
        if self.detailed_readings and self.num_test == 0:
            raise ArgumentError("Detailed readings include the test loss. Found `num_test = 0`. Set one of them.")
        if self.detailed_readings and self.loss != "cross_entropy":
            raise ArgumentError(
                "Detailed readings draw labels from the predicted probabilities, which the loss 'cross_entropy' has. "
                f"Found `loss = {self.loss!r}`. Set `detailed_readings = 0`."
            )
        if not isinstance(self.augment, bool):
            raise ArgumentError(
                f"Parameter `augment` should be True or False. Found `augment = {short_repr(self.augment)}`."
            )

    def _check_names(self) -> None:
        from heldin.lab.registry import (  # imports torch
            INITS,
            LOSSES,
            MODELS,
            USER_MODEL,
            check_optimizer,
            check_scheduler,
        )

        if isinstance(self.model, str) and USER_MODEL.fullmatch(self.model):
            _require_name("model", self.model)
        else:
            require_choice("model", self.model, MODELS)
        require_choice("init", self.init, INITS)
        check_optimizer(self.optimizer, self.optimizer_options, weight_decay=self.weight_decay)
        check_scheduler(self.scheduler, self.scheduler_options)
        require_choice("loss", self.loss, LOSSES)

    def _check_task(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for name in (*OF_TASK, *NOT_OF_TASK):
            expected, found = TASK if name in OF_TASK else defaults[name], getattr(self, name)
            if found != expected:
                raise ArgumentError(
                    f"The task of this spec has its own {name.replace('_', ' ')}. Found `{name} = "
                    f"{short_repr(found)}`. Change the task instead, and leave `{name} = {expected!r}`."
                )

    @property
    def task(self) -> str | None:
        """The name of the user's task; None if the dataset is not one."""
        found = _TASK_DATASET.fullmatch(self.dataset) if isinstance(self.dataset, str) else None
        return None if found is None else found["name"]

    @property
    def task_hashes(self) -> tuple[str, str] | None:
        """The hashes of the source and of the data of the user's task; None if the dataset is not one."""
        found = _TASK_DATASET.fullmatch(self.dataset)
        return None if found is None else (found["source"], found["data"])

    def as_dict(self) -> dict[str, Any]:
        """The spec as plain JSON values."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ADDED_FIELDS or getattr(self, field.name) != field.default
        }
        return {name: list(value) if name in LIST_FIELDS else value for name, value in values.items()}

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON of this spec."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def id(self) -> str:
        """The run's id: a hash of the spec."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """A short title: dataset and model, or the name of the task, and what differs from the defaults."""
        default = RunSpec()
        hidden = ("signals", "dataset", "model") if self.task is None else ("signals", "dataset", *OF_TASK)
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in hidden}
        differing = [
            f"{name}={','.join(value) if name in LIST_FIELDS else value}"
            for name, value in values.items()
            if value != getattr(default, name)
        ]
        subject = [self.dataset, self.model] if self.task is None else [f"task:{self.task}"]
        return " ".join([*subject, *differing])

    def with_(self, **changes: Any) -> RunSpec:
        """A copy of this spec with `changes`."""
        return replace(self, **changes)


def spec_from(values: Mapping[str, Any]) -> RunSpec:
    """Build the spec with these values; unknown names are refused, with the nearest known one."""
    known = [field.name for field in fields(RunSpec)]
    for name in values:
        if name not in known:
            raise ArgumentError(
                f"A spec has no {short_repr(name)}. It has {', '.join(known)}." + near_match(name, known)
            )
    return RunSpec(**values)


def specs_from_toml(path: Path, **changes: object) -> list[RunSpec]:
    """Read the specs of a TOML file, with `changes` applied.

    The file holds one spec, or one `[[run]]` for each spec; values above the first `[[run]]` hold for all. `folds`
    without `fold` stands for one run per fold.
    """
    content = _read_toml(path)
    known = {field.name for field in fields(RunSpec)}
    for name, value in content.items():
        if name != "run" and name not in known and isinstance(value, list) and any(isinstance(v, dict) for v in value):
            raise ArgumentError(f"{path} should list its runs as [[run]]. Found [[{name}]]. Rename it to [[run]].")
    runs = content.pop("run", [{}])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise ArgumentError(
            f"{path} should list its runs as [[run]], with two brackets. Found `run = {short_repr(runs)}`."
        )
    if not content and not any(runs):
        raise ArgumentError(f"{path} should have the fields of a spec, such as epochs = 100. Found none.")
    require_run_count(len(runs))
    specs: list[RunSpec] = []
    for run in runs:
        values = {**content, **run, **changes}
        if isinstance(values.get("folds"), int) and "fold" not in values:
            folds = values.pop("folds")
            specs += each_fold(spec_from(values), folds)
        else:
            specs.append(spec_from(values))
        require_run_count(len(specs))
    return specs


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOML_BYTES + 1)
        if len(text) <= MAX_TOML_BYTES:
            content: dict[str, Any] = tomllib.loads(text.decode())
            return content
        problem = f"It is larger than {MAX_TOML_BYTES:,} bytes."
    except OSError as error:
        problem = f"{error.strerror}."
    except RecursionError:
        problem = "Its values are nested too deeply."
    except ValueError as error:  # not TOML, not UTF-8, or an integer of thousands of digits
        problem = str(error)
    raise ArgumentError(f"{path} should be a TOML file with the fields of a spec. {problem}")


def each_fold(spec: RunSpec, folds: int) -> list[RunSpec]:
    """This spec for each of `folds` folds."""
    first = spec.with_(fold=0, folds=folds)  # refuses an impossible number of folds
    require_run_count(folds)
    return [first.with_(fold=fold) for fold in range(folds)]


def require_run_count(num: int) -> None:
    """Refuse more runs than one command can reasonably make; this is called before they are built."""
    if num > MAX_RUNS:
        raise ArgumentError(
            f"One command should make at most {MAX_RUNS:,} runs. Found {num:,}. Ask for fewer folds or seeds."
        )


def _is_name(value: str) -> bool:
    """Whether a text can be a name: not empty, short, and without control characters."""
    return bool(value) and value.isprintable() and len(value.encode()) <= MAX_NAME_BYTES


def _require_name(name: str, value: object) -> None:
    if not (isinstance(value, str) and _is_name(value)):
        raise ArgumentError(
            f"Parameter `{name}` should be a name of at most {MAX_NAME_BYTES} characters. "
            f"Found `{name} = {short_repr(value)}`."
        )


def _require_at_most(name: str, value: float, bound: float, *, bound_name: str | None = None) -> None:
    if value > bound:
        limit, other = (bound, "") if bound_name is None else (f"`{bound_name}`", f" and `{bound_name} = {bound}`")
        raise ArgumentError(f"Parameter `{name}` should be at most {limit}. Found `{name} = {value}`{other}.")
