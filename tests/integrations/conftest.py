"""The contract of all frameworks, and what their tests share.

Each test file of a framework has a fixture `train(stopping=None, *, epochs=20, steps=None, **options)`, a function.
It trains the network of programs/mnist_mlp.py, always from the same weights and seed, and returns a namespace with

    epochs, steps  how long it trained, as the framework counts
    state          all state it ended with: weights, optimizer, logs
    weights        the weights of the model
    epoch_weights  the weights after each epoch

`scripted`, `check_same_training` and `check_kept_weights` use it: the same values stop every framework at the same
point for the same reason, measuring does not change training, and it ends with the weights that `keep` asks for.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import runpy
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.states import differences, frozen
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heldin import Patience, Smoothed, StopReason
from heldin.needs import BatchGradients
from heldin.rules import NthRise
from heldin.signals import StatefulSignal
from heldin.types import Direction

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
NAN = float("nan")


@dataclass(frozen=True)
class ScriptedSignal(StatefulSignal):
    """Reads the values of the script, one after the other."""

    name: ClassVar[str] = "scripted"
    direction: ClassVar[Direction] = Direction.RISES
    script: tuple[float, ...] = ()

    @property
    def needs(self):
        return BatchGradients("none")

    def step(self, memory, found):
        seen = memory.get("seen", 0)
        return {"seen": seen + 1}, self.script[seen]


@dataclass(frozen=True)
class ScriptedCase:
    """Scripted values, and where and why they stop training."""

    values: tuple[float, ...]
    options: dict[str, Any]
    budget: int  # epochs to train for at most; optimizer steps if `every` is given
    epoch: int | None  # of the stop; None if the budget ends first
    reason: StopReason | None
    sentence: str
    measured_at: tuple[int, ...]  # the epochs (steps) of the measurements

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `HeldInStopping`."""
        return {"signal": ScriptedSignal(script=self.values), "batches": 2, **self.options}

    @property
    def limit(self) -> dict[str, int]:
        """The arguments of `train`."""
        return {"steps" if "every" in self.options else "epochs": self.budget}

    def check(self, stopping: Any, trained: Any) -> None:
        decision, history = stopping.decision, stopping.stopper.history
        assert (decision.stop, decision.epoch, decision.reason) == (self.epoch is not None, self.epoch, self.reason)
        assert (stopping.reason, stopping.decision.headline) == (self.reason, self.sentence)
        assert stopping.sentence.startswith(self.sentence)
        assert tuple(reading.epoch for reading in history) == self.measured_at
        assert repr([reading.values["scripted"] for reading in history]) == repr([*self.values[: len(history)]])
        trained_for = trained.steps if "every" in self.options else trained.epochs
        assert trained_for == (self.budget if self.epoch is None else self.epoch + 1)


CASES = {
    "2nd rise": ScriptedCase(
        (3.0, 1.0, 2.0, 1.0, 2.0, 3.0),
        {"patience": 2},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted rose for the 2nd time (1 -> 2)",
        (0, 1, 2, 3, 4),
    ),
    "consecutive rises, by name": ScriptedCase(
        (1.0, 2.0, 1.0, 2.0, 3.0, 1.0),
        {"rule": "consecutive_rises", "patience": 2},
        6,
        4,
        StopReason.CONSECUTIVE_RISES,
        "stopped at epoch 4: scripted rose 2 times in a row (1 -> 3)",
        (0, 1, 2, 3, 4),
    ),
    "no improvement, as a rule object": ScriptedCase(
        (3.0, 2.0, 2.5, 2.25, 2.125, 1.0),
        {"rule": Patience(3)},
        6,
        4,
        StopReason.NO_IMPROVEMENT,
        "stopped at epoch 4: scripted has not improved on 2 for 3 measurements",
        (0, 1, 2, 3, 4),
    ),
    "smoothed": ScriptedCase(
        (4.0, 2.0, 0.0, 2.0, 7.0, 9.0),
        {"rule": Smoothed(NthRise(1), window=3)},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted (mean over 3 values) rose for the 1st time (1.333 -> 3)",
        (0, 1, 2, 3, 4),
    ),
    "not finite": ScriptedCase(
        (1.0, NAN, NAN, 1.0),
        {"patience": 2},
        4,
        2,
        StopReason.NOT_FINITE,
        "stopped at epoch 2: scripted was not finite 2 times in a row (nan)",
        (0, 1, 2),
    ),
    "budget ends first": ScriptedCase(
        (3.0, 2.0, 2.5),
        {},
        3,
        None,
        None,
        "not stopped after 3 measurements: scripted rose 1 of 5 times",
        (0, 1, 2),
    ),
    "warm-up": ScriptedCase(
        (1.0, 2.0, 3.0, 4.0),
        {"patience": 2, "warmup": 2},
        6,
        4,
        StopReason.NTH_RISE,
        "stopped at epoch 4: scripted rose for the 2nd time (2 -> 3)",
        (2, 3, 4),
    ),
    "every 3 steps": ScriptedCase(
        (2.0, 1.0, 3.0, 4.0),
        {"patience": 1, "every": 3},
        12,
        8,
        StopReason.NTH_RISE,
        "stopped at step 8: scripted rose for the 1st time (1 -> 3)",
        (2, 5, 8),
    ),
    "every 2 steps, with warm-up": ScriptedCase(
        (1.0, 0.5, 2.0, 3.0),
        {"patience": 1, "every": 2, "warmup": 3},
        10,
        7,
        StopReason.NTH_RISE,
        "stopped at step 7: scripted rose for the 1st time (0.5 -> 2)",
        (3, 5, 7),
    ),
    "every 4 steps, budget ends first": ScriptedCase(
        (1.0, 2.0),
        {"every": 4},
        10,
        None,
        None,
        "not stopped after 2 measurements: scripted rose 1 of 5 times",
        (3, 7),
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def scripted(request) -> ScriptedCase:
    return request.param


@pytest.fixture
def scripted_signal():
    """A function that makes a signal of a script of values."""
    return lambda values: ScriptedSignal(script=tuple(values))


@pytest.fixture
def check_same_training(train, same_state):
    """Train until the stop, train as long without stopping, and compare the results to the last bit."""

    def check(stopping: Any, **options: Any) -> None:
        trained = train(stopping, **options)
        random_number = torch.rand(1)
        assert stopping.decision.stop
        assert trained.epochs < 20
        limit = {"epochs": trained.epochs} if stopping.every is None else {"steps": trained.steps}
        plain = train(**limit, **options)
        assert plain.steps == trained.steps
        assert same_state(plain.state, trained.state)
        assert torch.equal(random_number, torch.rand(1))

    return check


@pytest.fixture(params=[3, 20], ids=["budget ends first", "stopped"])
def check_kept_weights(request, train, same_state):
    """Train with `keep="before_rise"`, and compare the weights with those of the epoch that the decision names."""

    def check(stopping: Any) -> None:
        trained = train(stopping, epochs=request.param)
        assert same_state(trained.weights, trained.epoch_weights[stopping.decision.before])
        assert stopping.decision.stop == (request.param == 20)

    return check


@pytest.fixture
def check_example():
    """Run an example with a stopper that stops at the first rise, and without one: training is the same until then."""

    def check(name: str, **options: Any) -> None:
        example = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        stopped = example["train"](example["HeldInStopping"](patience=1, **options), epochs=20)
        errors = example["train"](epochs=20)
        assert len(stopped) < len(errors) == 20
        assert stopped == errors[: len(stopped)]

    return check


def load_program(name: str) -> Any:
    if str(PROGRAMS) not in sys.path:
        sys.path.append(str(PROGRAMS))  # as for a program run by itself
    return importlib.import_module(name)


@pytest.fixture
def program():
    """A function that imports a file of programs/."""
    return load_program


@pytest.fixture(scope="session")
def mnist() -> TensorDataset:
    """300 real digits, (784,), half of them with a random label."""
    return load_program("mnist_mlp").noisy_mnist()


@pytest.fixture
def loader(mnist):
    return DataLoader(mnist, batch_size=30, shuffle=True)


@pytest.fixture
def make_mlp() -> Callable[..., nn.Module]:
    return load_program("mnist_mlp").mlp


@pytest.fixture
def mlp(make_mlp) -> nn.Module:
    return make_mlp()


@pytest.fixture
def values_of():
    """A function that returns the values of gradient disparity measured by an adapter."""
    return lambda stopping: [reading.values["gradient_disparity"] for reading in stopping.stopper.history]


@pytest.fixture
def same_state():
    """A function that compares states of models, optimizers and adapters to the last bit."""
    return lambda one, other: differences(frozen(one), frozen(other)) == []


@pytest.fixture(autouse=True)
def _reset_accelerate():
    """Reset the state that Accelerate, the Trainer and skorch share within a process."""
    if (state := sys.modules.get("accelerate.state")) is not None:
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()


@pytest.fixture
def padded_texts():
    """A function that makes tokens of texts of different lengths; the labels of padding are -100."""

    def make(*shape: int, num_ids: int = 20) -> dict[str, Tensor]:
        ids = torch.randint(1, num_ids, shape)
        mask = torch.arange(shape[1]) < torch.randint(3, shape[1] + 1, (shape[0], 1))
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}

    return make


@pytest.fixture
def run_program(tmp_path):
    """Run `main` of a file of programs/ in child processes, one per rank; return their exit codes and output.

    They are not forks of this process: after an operation of torch that used several threads, a fork of it hangs in the
    next one. Children that hang are killed, and fail the test.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)

    def run(name: str, *arguments: Any, ranks: int = 1, timeout: float = 300.0) -> tuple[list[int | None], str]:
        target = load_program("child_process").run
        context.set_forkserver_preload([name])  # the framework is imported once, if this is the first program
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        logs = [tmp_path / f"log{rank}.txt" for rank in range(ranks)]
        processes = []
        for rank in range(ranks):
            environment = {"CUDA_VISIBLE_DEVICES": ""}
            if ranks > 1:  # as torchrun sets them
                environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": "test"}
                environment |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            processes.append(context.Process(target=target, args=(name, arguments, environment, logs[rank])))
        for process in processes:
            process.start()
        codes = []
        for process in processes:
            process.join(timeout)
            codes.append(process.exitcode)  # None if it hangs
            process.kill()
            process.join()
        return codes, "".join(log.read_text()[-3000:] for log in logs if log.exists())

    return run


@pytest.fixture
def kill_program(run_program):
    """Run a file of programs/ that kills itself at the given epoch or step."""

    def run(name: str, folder: Path, kill_at: int) -> None:
        codes, printed = run_program(name, folder, kill_at)
        assert codes == [-signal.SIGKILL], printed
        assert any(folder.iterdir())

    return run


@pytest.fixture
def run_ranks(run_program, tmp_path):
    """Run a file of programs/ on 2 ranks (gloo); return what they wrote to `<first argument>/rank<r>.json`."""

    def run(name: str) -> list[dict[str, Any]]:
        codes, printed = run_program(name, tmp_path, ranks=2)
        assert codes == [0, 0], printed
        return [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]

    return run


@pytest.fixture
def check_ranks_agree(run_ranks):
    """Run a file of programs/ on 2 ranks: both end with the same summary, which is returned."""

    def check(name: str) -> dict[str, Any]:
        one, other = run_ranks(name)
        assert one == other
        assert one["decision"]["stop"]
        return one

    return check
