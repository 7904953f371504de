"""What the tests of all frameworks share: scripted values, real digits, and programs run on their own.

The parity table: the same values go through every adapter and stop it at the same point for the same reason. A test
takes the fixture `scripted`, trains with `HeldInStopping(**scripted.arguments, ...)` for `scripted.budget` epochs (for
rows that count steps: optimizer steps), and calls `scripted.check(stopping, trained)`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from heldin import Patience, Smoothed, StopReason
from heldin.needs import BatchGradients
from heldin.rules import NthRise
from heldin.signals import RememberingSignal
from heldin.types import Direction

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
NAN = float("nan")


@dataclass(frozen=True)
class Scripted(RememberingSignal):
    """Reads one value of the script after the other. Where it stands is part of the state, as for any such signal."""

    name: ClassVar[str] = "scripted"
    direction: ClassVar[Direction] = Direction.RISES
    script: tuple[float, ...] = ()

    @property
    def needs(self):
        return BatchGradients("none")

    def recall(self, memory, found):
        seen = memory.get("seen", 0)
        return {"seen": seen + 1}, self.script[seen]


@dataclass(frozen=True)
class Row:
    """A script, and where and why it stops."""

    values: tuple[float, ...]
    options: dict[str, Any]
    budget: int  # epochs to train for at most; optimizer steps in rows with `every`
    epoch: int | None  # of the stop, from 0; None where the budget ends first
    reason: StopReason | None
    sentence: str
    measured_at: tuple[int, ...] = field(default=())  # the epochs (steps) of the measurements

    @property
    def counts_steps(self) -> bool:
        return "every" in self.options

    @property
    def arguments(self) -> dict[str, Any]:
        """For `HeldInStopping`; the loss and what else a framework asks for is the test's own."""
        return {"signal": Scripted(script=self.values), "batches": 2, **self.options}

    @property
    def trains_for(self) -> int:
        """How many epochs (steps) training goes on, all in all."""
        return self.budget if self.epoch is None else self.epoch + 1

    def check(self, stopping: Any, trained: int) -> None:
        """`trained`: epochs (steps) that the framework itself counted."""
        decision, history = stopping.decision, stopping.stopper.history
        assert (decision.stop, decision.epoch, decision.reason) == (self.epoch is not None, self.epoch, self.reason)
        assert (stopping.reason, stopping.sentence) == (self.reason, self.sentence)
        assert tuple(reading.epoch for reading in history) == self.measured_at
        assert repr([reading.values["scripted"] for reading in history]) == repr([*self.values[: len(history)]])
        assert trained == self.trains_for


PARITY = {
    "2nd rise": Row(
        (3.0, 1.0, 2.0, 1.0, 2.0, 3.0),
        {"patience": 2},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted rose for the 2nd time (1 -> 2)",
        (0, 1, 2, 3, 4),
    ),
    "rises in a row, by name": Row(
        (1.0, 2.0, 1.0, 2.0, 3.0, 1.0),
        {"rule": "consecutive_rises", "patience": 2},
        6,
        4,
        StopReason.CONSECUTIVE_RISES,
        "stopped at epoch 4: scripted rose 2 times in a row (1 -> 3)",
        (0, 1, 2, 3, 4),
    ),
    "no improvement, a rule object": Row(
        (3.0, 2.0, 2.5, 2.25, 2.125, 1.0),
        {"rule": Patience(3)},
        6,
        4,
        StopReason.NO_IMPROVEMENT,
        "stopped at epoch 4: scripted has not improved on 2 for 3 measurements",
        (0, 1, 2, 3, 4),
    ),
    "smoothed": Row(
        (4.0, 2.0, 0.0, 2.0, 7.0, 9.0),
        {"rule": Smoothed(NthRise(1), window=3)},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted (mean over 3 values) rose for the 1st time (1.333 -> 3)",
        (0, 1, 2, 3, 4),
    ),
    "not finite": Row(
        (1.0, NAN, NAN, 1.0),
        {"patience": 2},
        4,
        2,
        StopReason.NOT_FINITE,
        "stopped at epoch 2: scripted was not finite 2 times in a row (nan)",
        (0, 1, 2),
    ),
    "the budget ends first": Row(
        (3.0, 2.0, 2.5),
        {},
        3,
        None,
        None,
        "not stopped after 3 measurements: scripted rose 1 of 5 times",
        (0, 1, 2),
    ),
    "warm-up": Row(
        (1.0, 2.0, 3.0, 4.0),
        {"patience": 2, "warmup": 2},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted rose for the 2nd time (2 -> 3)",
        (2, 3, 4),
    ),
    "every 3 steps": Row(
        (2.0, 1.0, 3.0, 4.0),
        {"patience": 1, "every": 3},
        12,
        8,
        StopReason.NTH_RISE,
        "stopped at step 8: scripted rose for the 1st time (1 -> 3)",
        (2, 5, 8),
    ),
    "every 2 steps, with a warm-up": Row(
        (1.0, 0.5, 2.0, 3.0),
        {"patience": 1, "every": 2, "warmup": 3},
        10,
        7,
        StopReason.NTH_RISE,
        "stopped at step 7: scripted rose for the 1st time (0.5 -> 2)",
        (3, 5, 7),
    ),
    "every 4 steps, the budget ends first": Row(
        (1.0, 2.0),
        {"every": 4},
        10,
        None,
        None,
        "not stopped after 2 measurements: scripted rose 1 of 5 times",
        (3, 7),
    ),
}


@pytest.fixture(params=PARITY.values(), ids=PARITY.keys())
def scripted(request) -> Row:
    """Each row of the parity table."""
    return request.param


def load(name: str) -> Any:
    """A file of programs/, as a module."""
    if str(PROGRAMS) not in sys.path:
        sys.path.append(str(PROGRAMS))  # as for a program run by itself
    return importlib.import_module(name)


@pytest.fixture
def scripted_signal():
    """The function that makes a signal of a script of values."""
    return lambda values: Scripted(script=tuple(values))


@pytest.fixture(scope="session")
def mnist() -> TensorDataset:
    """300 real digits, (784,), half of them with a random label."""
    return load("mnist_mlp").noisy_mnist()


@pytest.fixture
def mlp() -> nn.Module:
    """The network of programs/mnist_mlp.py."""
    return load("mnist_mlp").mlp()


def equal_states(one: Any, other: Any) -> bool:
    """Whether two states (of models, optimizers, stoppers) are the same to the last bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal_states(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal_states, one, other))
    return repr(one) == repr(other)


@pytest.fixture
def same():
    """The function that compares states."""
    return equal_states


@pytest.fixture(autouse=True)
def _one_accelerator_a_test():
    """Accelerate keeps one state a process, Hugging Face's Trainer and skorch too; each test begins with a new one."""
    if (state := sys.modules.get("accelerate.state")) is not None:
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()


@pytest.fixture
def padded():
    """The function that makes tokens of texts of different lengths; labels of padding are -100."""

    def made(*shape: int, num_ids: int = 20) -> dict[str, Tensor]:
        ids = torch.randint(1, num_ids, shape)
        mask = torch.arange(shape[1]) < torch.randint(3, shape[1] + 1, (shape[0], 1))
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}

    return made


@pytest.fixture
def program():
    """The function that loads a file of programs/ as a module."""
    return load


@pytest.fixture
def example(tmp_path, monkeypatch):
    """An example of examples/: functions that run it without the lines marked `# +` and with them, and their number."""

    def read(name: str) -> tuple[Callable[[], object], Callable[[], object], int]:
        path = EXAMPLES / f"{name}.py"
        lines = path.read_text().splitlines()
        plain = ["" if line.endswith("# +") else line for line in lines]
        monkeypatch.chdir(tmp_path)

        def run(source: list[str]) -> Callable[[], object]:
            return lambda: exec(compile("\n".join(source), str(path), "exec"), {"__name__": "__main__"})

        return run(plain), run(lines), sum(line.endswith("# +") for line in lines)

    return read


@pytest.fixture
def run_program():
    """Run a file of programs/ in a process of its own, on one rank or several; what it printed, and its exit code.

    A run that hangs is ended with all its ranks, and fails the test.
    """

    def run(name: str, *arguments: object, ranks: int = 1, timeout: float = 150.0) -> tuple[str, int]:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        command = [sys.executable, *launcher, PROGRAMS / f"{name}.py", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                printed, _ = process.communicate()
                pytest.fail(f"{name} on {ranks} ranks hung:\n{printed[-3000:]}")
        return printed, process.returncode

    return run


@pytest.fixture
def ranks(run_program, tmp_path):
    """Run a program on 2 ranks (gloo); what each of them wrote to `<first argument>/rank<r>.json`."""

    def run(name: str, *arguments: object, ranks: int = 2) -> list[dict[str, Any]]:
        printed, code = run_program(name, tmp_path, *arguments, ranks=ranks)
        assert code == 0, printed[-3000:]
        return [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(ranks)]

    return run
