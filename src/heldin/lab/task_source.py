"""Where a task comes from: a function, a file or a module; its identity, and the trial before its first run.

The function is called once for each run, with all random streams seeded by the run's seed: so it creates a new model
each time, and the same one for the same seed. Its data must be the same for every seed. The hash of its source and of
its data is part of a spec that trains it (`task:NAME-HASH`), so a changed task is another one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from heldin.errors import ArgumentError, HeldinError, short_repr
from heldin.lab.data import Arrays
from heldin.lab.run import Parts, initial_seed
from heldin.lab.samples import prepare
from heldin.lab.spec import TASK, RunSpec
from heldin.lab.task import (
    Task,
    as_task,
    describe_error,
    is_read_at_random,
    measurable_signals,
    parts_of,
    read_data,
    try_step,
)
from heldin.probing.isolation import seeded_randomness

TaskFunction: TypeAlias = Callable[..., Any]

FUNCTION = "task"  # the name of the function in a file, unless another is given
NOT_OF_USER = {"heldin", *sys.stdlib_module_names}
_imported: set[str] = set()  # modules that the latest task file imported from its folder
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class TaskSource:
    """Where a task comes from; a worker process gets this and calls the function.

    Attributes:
        function: the function or class itself; None if `reference` names it.
        reference: `path/to/task.py`, `path/to/task.py:function` or `package.module:function`.
    """

    function: TaskFunction | None = None
    reference: str | None = None

    @classmethod
    def find(cls, task: TaskFunction | str | Path) -> TaskSource:
        """The source of a function, a class or a reference."""
        if isinstance(task, (str, Path)):
            path, _, function = _split_reference(str(task))
            if path is None:
                return cls(reference=str(task))
            absolute = Path(path).expanduser().resolve()  # workers may be in another folder
            return cls(reference=f"{absolute}:{function}" if function else str(absolute))
        if not callable(task):
            raise ArgumentError(
                "A task should be a function that returns model, loss, optimizer and data, or where it is, such as "
                f"'task.py' or 'package.module:function'. Found {short_repr(task)}."
            )
        return cls(function=task)

    @property
    def where(self) -> str:
        """How messages call it."""
        if self.reference is None:
            return getattr(self.function, "__name__", "the task")
        here = f"{Path.cwd()}{os.sep}"
        return self.reference.removeprefix(here)

    @property
    def name(self) -> str:
        """A short name, for the spec."""
        path, _, function = _split_reference(self.where)
        stem = Path(path).stem if path is not None else function
        return re.sub(r"[^\w.-]", "_", stem or function)[:40].strip("-.") or FUNCTION

    def load(self) -> TaskFunction:
        """The function, imported again if it is in a file."""
        if self.function is not None:
            return self.function
        assert self.reference is not None
        path, module, name = _split_reference(self.reference)
        loaded = _import_file(path) if path is not None else _import_module(module, self.reference)
        found = getattr(loaded, name or FUNCTION, None)
        if not callable(found):
            functions = {key: value for key, value in vars(loaded).items() if _is_task_like(value, loaded)}
            own = sorted(functions, key=lambda key: (key != FUNCTION, not _uses_task(functions[key])))
            place = path if path is not None else module
            raise ArgumentError(
                f"{place} should have a function `{name or FUNCTION}`. "
                + (f"Found {', '.join(own)}. Name one: {place}:{own[0]}." if own else "Found none.")
            )
        return found  # type: ignore[no-any-return]

    def call(self, seed: int) -> Task:
        """Call the function with the random streams of this seed, and check what it returns."""
        with self._in_its_folder(), seeded_randomness(initial_seed(seed)):
            return self._call()

    def build(self, spec: RunSpec) -> tuple[Parts, Arrays, str]:
        """The parts, the data and its fingerprint for a run, inside the random streams of its seed.

        Raises:
            ArgumentError: The task is not the one that the spec names.
        """
        with self._in_its_folder():
            source = self.source_hash()
            task = self._call()
        arrays, data = read_data(task, self.where)
        if spec.task_hashes != (source, data[-16:-8]):
            raise ArgumentError(
                f"{self.where} has changed since this command was started. Run the same command again: it then trains "
                "the changed task."
            )
        return parts_of(task), arrays, data

    def source_hash(self) -> str:
        """A hash of the source: of the file of the function, and of the files beside it that it imports.

        For a function of a script or a notebook: of the function, and of the functions and classes that it uses.
        """
        function = self.load()
        module = sys.modules.get(getattr(function, "__module__", "") or "")
        try:
            if module is not None and module.__name__ != "__main__" and getattr(module, "__file__", None):
                texts = [path.read_bytes() for path in _files_used(module)]
            else:
                texts = [text.encode() for text in _sources_used(function)]
        except (OSError, TypeError) as error:
            raise ArgumentError(
                f"The source of {self.where} should be readable, since it identifies the runs. Found none: {error}. "
                "Write the function in a file, and give its path."
            ) from error
        digest = hashlib.sha256(getattr(function, "__qualname__", "").encode())
        for text in texts:
            digest.update(hashlib.sha256(text.replace(b"\r\n", b"\n")).digest())
        return digest.hexdigest()[:8]

    def require_picklable(self, jobs: int) -> None:
        """Refuse a task that worker processes cannot receive."""
        if jobs == 1 or self.reference is not None:
            return
        from joblib.externals.loky.backend.reduction import dumps  # what sends it to a worker

        try:
            dumps(self)
        except Exception as error:  # pickling raises whatever the objects inside raise
            raise ArgumentError(
                f"With jobs={jobs} worker processes train, and the task {self.where} cannot be sent to them: {error}. "
                "Write it in a file and give its path, or set jobs=1."
            ) from error

    def _call(self) -> Task:
        function = self.load()
        try:
            _require_no_arguments(function, self.where)
            return as_task(function(), self.where)
        except HeldinError:
            raise
        except Exception as error:
            raise ArgumentError(f"The task {self.where} failed: {describe_error(error)}") from error

    @contextmanager
    def _in_its_folder(self) -> Iterator[None]:
        """Lets the task import modules that are beside its file, as a script does."""
        path, _, _ = _split_reference(self.where) if self.reference is not None else (None, "", "")
        folder = str(Path(path).resolve().parent if path is not None else Path.cwd())
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            if folder in sys.path:
                sys.path.remove(folder)


@dataclass(frozen=True)
class CheckedTask:
    """A task that was tried: the spec of its run on all the data with seed 0, and what a user should know."""

    spec: RunSpec
    num_train: int
    notes: tuple[str, ...]


def check_task(source: TaskSource, *, epochs: int | None = None, batch_size: int | None = None) -> CheckedTask:
    """Call a task twice with one seed and once with another, and try one step of training.

    Everything that would fail later is refused here, before anything is written.
    """
    with source._in_its_folder():
        source_hash = source.source_hash()
    first, again, other = source.call(0), source.call(0), source.call(1)
    _require_new_objects(first, again, source.where)
    arrays, data = read_data(first, source.where)
    if read_data(again, source.where)[1] != data:
        raise ArgumentError(
            f"{source.where} should give the same data each time. Found other samples at a second call. Seed what is "
            "drawn at random: torch.Generator().manual_seed(0), numpy.random.default_rng(0)."
        )
    if read_data(other, source.where)[1] != data:
        raise ArgumentError(
            f"{source.where} should give the same data for every seed. Found other samples for seed 1 than for seed 0. "
            "Seed what is drawn at random, as in random_split(..., generator=torch.Generator().manual_seed(0))."
        )
    if not _same_weights(first.model, again.model):
        raise ArgumentError(
            f"{source.where} should give the same initial weights for the same seed. Found other weights at a second "
            "call. heldin seeds torch, numpy and random before each call: seed your own generators too."
        )
    notes = []
    if _same_weights(first.model, other.model):
        notes.append(
            "All seeds start from the same weights, so they differ in the order of the data only. If that is not "
            "intended, remove torch.manual_seed from the task."
        )
    if first.unaugmented is None and is_read_at_random(other, source.where):
        notes.append(
            "`train` has random transforms, so folds are validated on augmented samples. To validate on the samples "
            "as they are, give `unaugmented` too: the samples of `train` in the same order, without random transforms."
        )
    spec = RunSpec(
        dataset=f"task:{source.name}-{source_hash}{data[-16:-8]}",
        model=TASK,
        optimizer=TASK,
        loss=TASK,
        batch_size=first.batch_size if batch_size is None else batch_size,
        epochs=first.epochs if epochs is None else epochs,
        signals=(),
        num_test=None if first.test is not None else 0,
    )
    split = prepare(spec, arrays)  # refuses a batch size or a number of samples that does not fit
    with seeded_randomness(initial_seed(0)):
        try_step(first, arrays, source.where)
        measurable, left_out = measurable_signals(spec, parts_of(again), split)
    if left_out:
        notes.append("Not recorded, because they cannot be measured here: " + "; ".join(left_out))
    return CheckedTask(spec.with_(signals=measurable), len(arrays.y_train), tuple(notes))


def _require_new_objects(first: Task, again: Task, where: str) -> None:
    mine = {id(parameter) for parameter in first.model.parameters()}
    if first.model is again.model or mine & {id(parameter) for parameter in again.model.parameters()}:
        raise ArgumentError(
            f"{where} should create a new model at each call. Found the same one twice. Create the model inside the "
            "function."
        )
    if first.optimizer is again.optimizer:
        raise ArgumentError(
            f"{where} should create a new optimizer at each call. Found the same one twice. Create it inside the "
            "function."
        )


def _same_weights(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


def _require_no_arguments(function: TaskFunction, where: str) -> None:
    """Refuse a function with arguments that have no default."""
    try:
        needed = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):  # a builtin
        needed = []
    if needed:
        raise ArgumentError(
            f"{where} is called without arguments. Found {', '.join(needed)} without a default. heldin seeds the "
            "random streams before each call, so a seed is not needed."
        )


def _split_reference(reference: str) -> tuple[str | None, str, str]:
    """A file or None, a module, and the name of a function, which may be empty."""
    head, colon, function = reference.rpartition(":")
    if colon and head.endswith(".py"):
        return head, "", function
    if reference.endswith(".py") or "/" in reference or "\\" in reference:
        return reference, "", ""
    if _REFERENCE.fullmatch(reference):
        return None, head, function
    return None, reference, ""


def _import_file(path: str) -> types.ModuleType:
    file = Path(path).expanduser()
    if not file.is_file():
        raise ArgumentError(
            f"The task should be a file, or package.module:function. Found no file {file.name} in {file.parent}. "
            "`heldin compare --new task.py` writes one."
        )
    name = f"_heldin_task_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise ArgumentError(f"The task should be a Python file. Found {file.name}. Rename it to end with .py.")
    module = importlib.util.module_from_spec(spec)
    while _imported:  # they may have changed since
        sys.modules.pop(_imported.pop(), None)
    before = {*sys.modules}
    sys.modules[name] = module  # dataclasses and others look their module up
    importlib.invalidate_caches()
    try:
        exec(compile(file.read_bytes(), str(file.resolve()), "exec"), vars(module))  # always the present text
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also of sys.exit() in a script
        raise ArgumentError(f"{file.name} cannot be imported: {describe_error(error)}") from error
    finally:
        _imported.update(each for each in {*sys.modules} - before if _is_beside(sys.modules[each], file))
    return module


def _is_beside(module: types.ModuleType, file: Path) -> bool:
    found = Path(str(getattr(module, "__file__", None) or "."))
    return file.resolve().parent in found.parents and "site-packages" not in found.parts


def _import_module(name: str, reference: str) -> types.ModuleType:
    if not _REFERENCE.fullmatch(reference):
        raise ArgumentError(
            f"The task should be a file, as task.py, or a function, as package.module:function. Found {reference!r}."
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ArgumentError(
            f"{name} cannot be imported: {describe_error(error)} Install the package, or start in its folder."
        ) from error


def _is_task_like(value: object, module: types.ModuleType) -> bool:
    return isinstance(value, (types.FunctionType, type)) and value.__module__ == module.__name__


def _uses_task(value: object) -> bool:
    """Whether a function probably returns a task: its annotation or its code names the class."""
    returned = getattr(value, "__annotations__", {}).get("return")
    code = getattr(value, "__code__", None)
    return returned in (Task, Task.__name__) or Task.__name__ in getattr(code, "co_names", ())


def _files_used(module: types.ModuleType) -> list[Path]:
    """The file of a module, and of the modules in its folder, or in its package, that it imports."""
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    folder = Path(str((module if getattr(top, "__file__", None) is None else top).__file__)).resolve().parent
    found: dict[Path, None] = {}
    waiting = [module]
    while waiting:
        each = waiting.pop(0)
        file = getattr(each, "__file__", None)
        path = Path(file).resolve() if file else None
        if path is None or path.suffix != ".py" or folder not in path.parents or path in found:
            continue
        if "site-packages" in path.parts and "site-packages" not in folder.parts:
            continue  # an environment inside the folder
        found[path] = None
        for value in list(vars(each).values()):
            name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and name in sys.modules and name.partition(".")[0] not in NOT_OF_USER:
                waiting.append(sys.modules[name])
    return [next(iter(found)), *sorted(list(found)[1:])]


def _sources_used(function: Any) -> list[str]:
    """The source of a function, and of the functions and classes of the same module that it uses."""
    found: dict[str, str] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop(0)
        name = getattr(each, "__qualname__", repr(each))
        if name in found:
            continue
        found[name] = inspect.getsource(each)
        functions = [value for value in vars(each).values() if callable(value)] if isinstance(each, type) else [each]
        for code_of in functions:
            code = getattr(inspect.unwrap(code_of), "__code__", None)
            namespace = getattr(code_of, "__globals__", {})
            for used in _names_in(code):
                value = namespace.get(used)
                if isinstance(value, (types.FunctionType, type)) and value.__module__ == function.__module__:
                    waiting.append(value)
                elif isinstance(value, (int, float, str, tuple)):
                    found[f"{used} ="] = repr(value)
    return [f"{name}\n{text}" for name, text in found.items()]


def _names_in(code: Any) -> list[str]:
    if code is None:
        return []
    inner = [
        name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _names_in(constant)
    ]
    return [*code.co_names, *inner]
