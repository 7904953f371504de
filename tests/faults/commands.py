"""Runs many `heldin` commands as separate processes, cheaply: torch is imported once, by a process that forks them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy

from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

SPEC = RunSpec(
    dataset="npz:tiny", scale=0.02, batch_size=6, epochs=3, signals=("gradient_disparity", "cosine@fixed", "label_wave")
)
SPECS = [SPEC.with_(seed=seed) for seed in range(2)]
FILES = {"spec.json", "epochs.jsonl", "timings.jsonl", "done.json", "data.json", "lock"}  # of a run that is done
LEFT_BEHIND = {"checkpoint.pt", "holder.json"}  # by a process that was killed just after it wrote done.json
SECONDS = 300  # longer than any command here takes on a busy machine

SERVER = """
import json, os, resource, signal, subprocess, sys

import joblib, torch
import heldin.lab.engine
from heldin.cli.main import build_app, main

torch.set_num_threads(1)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # imports what torch imports when it is first used
build_app()


def kill_at(number, folder):
    # Counts the operations on files below a folder, and kills this process before the one with this number.
    count = 0

    def hook(event, arguments):
        nonlocal count
        paths = [os.fspath(part) for part in arguments[:2] if isinstance(part, (str, os.PathLike))]
        if event.startswith(("open", "os.")) and any(str(path).startswith(folder) for path in paths):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return lambda: count


def run(order):
    os.setsid()
    os.chdir(order["cwd"])
    output, cat = open(order["output"], "w"), None
    if order["file_limit"] is not None:  # not for what is printed
        cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output)
        output = cat.stdin
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    if order["file_limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_limit"], resource.RLIM_INFINITY))
    counted = kill_at(order["kill_at"], order["cwd"])
    code = main(order["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    if cat is not None:
        os.close(1)
        os.close(2)
        cat.wait()
    else:
        with open(order["output"] + ".count", "w") as file:
            file.write(str(counted()))
    os._exit(code)


for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
    else:
        answer = os.fork()
        if answer == 0:
            run(order)
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Finished:
    """What a command returned and printed."""

    code: int  # negative: the signal that ended it
    printed: str
    num_operations: int | None  # on files in its folder; None if it was killed


class CommandServer:
    """Starts commands in folders of their own."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("HELDIN_DATA", None)
        self.outputs = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.num_started = 0

    def start(self, folder, *arguments, kill_at=None, file_limit=None):
        """Start a command in a folder, and return what `finish` needs."""
        self.num_started += 1
        output = f"{self.outputs.name}/{self.num_started}"
        Path(output).touch()
        order = {
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(folder),
            "output": output,
            "kill_at": kill_at,
            "file_limit": file_limit,
        }
        return self._ask(order), output

    def finish(self, started):
        """Wait until a command ends."""
        pid, output = started
        code = self._ask({"wait": pid})
        counted = Path(output + ".count")
        return Finished(code, Path(output).read_text(), int(counted.read_text()) if counted.exists() else None)

    def run(self, folder, *arguments, **options):
        """Run a command to its end."""
        return self.finish(self.start(folder, *arguments, **options))

    def close(self):
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()
        self.outputs.cleanup()

    def _ask(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def write_data(folder):
    """A dataset of 24 samples."""
    generator = numpy.random.default_rng(0)
    x, y = generator.normal(size=(32, 4)), numpy.arange(32) % 2
    numpy.savez(folder / "tiny.npz", x_train=x[:24], y_train=y[:24], x_test=x[24:], y_test=y[24:])


def run_arguments(specs=SPECS, *, jobs=1, store="heldin-runs", **changes):
    """The command that runs these specs, which differ in their seeds."""
    spec = specs[0].with_(**changes)
    signals = [part for signal in spec.signals for part in ("--signal", signal)]
    return (
        "run", "--dataset", spec.dataset, "--data", ".", "--scale", spec.scale, "--batch-size", spec.batch_size,
        "--epochs", spec.epochs, "--seeds", ",".join(str(spec.seed) for spec in specs), *signals,
        "--jobs", jobs, "--store", store,
    )  # fmt: skip


def records_of(folder, specs, store="heldin-runs"):
    """The bytes of the records of these runs, which do not depend on the machine or on interruptions."""
    paths = [Store(folder / store).folder(spec).path for spec in specs]
    return {path.name: [(path / name).read_bytes() for name in ("spec.json", "epochs.jsonl")] for path in paths}


def assert_complete(folder, specs, expected, store="heldin-runs"):
    """These runs are done, byte for byte as expected, and no incomplete file is left."""
    assert records_of(folder, specs, store) == expected
    for spec in specs:
        run = Store(folder / store).folder(spec)
        assert run.record().done
        assert not run.is_locked
        assert {*os.listdir(run.path)} <= FILES | LEFT_BEHIND


def assert_truthful(folder, specs, expected, store="heldin-runs"):
    """Interrupted runs are readable; what they recorded is the beginning of what is expected; done means complete."""
    for record in Store(folder / store).records():
        path = Store(folder / store).folder(record.spec).path / "epochs.jsonl"
        text = path.read_bytes() if path.exists() else b""
        whole = expected[record.id][1]
        assert whole.startswith(text[: text.rfind(b"\n") + 1])
        assert not record.done or text == whole


def wait_until(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
