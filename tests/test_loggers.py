"""log=: readings in the files of TensorBoard, MLflow and Weights & Biases, and training that does not change."""

from __future__ import annotations

import json
import logging
import random
import time
from itertools import pairwise

import numpy
import pytest
import torch
from tests.states import differences, frozen
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping, GradientDisparity
from heldin.errors import ArgumentError
from heldin.loggers import as_logger

NAMES = ["heldin/gradient_disparity", "heldin/label_wave"]  # the second one has no value at first
NUM_EPOCHS = 4


def train(log=None, *, epochs=NUM_EPOCHS, after_batch=None, after_epoch=None, **options):
    """Train, and return the stopper and all state that training ends with."""
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(3)
    data = TensorDataset(torch.randn(48, 4), torch.randint(3, (48,)))
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    signals = [name.removeprefix("heldin/") for name in NAMES]
    stopper = EarlyStopping(model, nn.CrossEntropyLoss(), signal=signals, log=log, **options)
    for epoch in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if after_batch is not None:
                after_batch()
        stopper.step(loader)
        if after_epoch is not None:
            after_epoch(epoch)
    streams = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    return stopper, frozen([model.state_dict(), optimizer.state_dict(), streams])


def expected_of(stopper):
    """The logged (step, value) of each name."""
    return {
        name: [
            (reading.epoch, value)
            for reading in stopper.history
            if (value := reading.values[name.removeprefix("heldin/")]) is not None
        ]
        for name in NAMES
    }


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """The module, which writes to files of `tmp_path`."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlflow").as_uri())
    yield mlflow
    mlflow.end_run()


@pytest.fixture
def wandb_run(tmp_path, monkeypatch):
    """A run of Weights & Biases in offline mode."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = pytest.importorskip("wandb")
    run = wandb.init(project="heldin", dir=tmp_path, mode="offline")
    yield run
    run.finish()


def rows_of_run(folder):
    """The rows in the file of an offline run: records in blocks, as LevelDB writes its log."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.rglob("*.wandb")
    records, kinds, deadline = [], [], time.monotonic() + 600.0
    while "exit" not in kinds and time.monotonic() < deadline:  # another process writes the file
        time.sleep(0.1)
        content, position, records = path.read_bytes(), 7, []
        while position + 7 <= len(content):
            size = int.from_bytes(content[position + 4 : position + 6], "little")
            records.append(Record.FromString(content[position + 7 : position + 7 + size]))
            position += 7 + size
        assert position < 2**15, "a record may continue in the next block"
        kinds = [record.WhichOneof("record_type") for record in records]
    items = [record.history.item for record, kind in zip(records, kinds, strict=True) if kind == "history"]
    return [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in row} for row in items]


def values_in(rows):
    return {name: [(row["heldin/step"], row[name]) for row in rows if name in row] for name in NAMES}


def test_a_function_gets_name_value_and_step():
    calls = []
    stopper, _ = train(lambda name, value, step: calls.append((name, value, step)), every=2)
    values = expected_of(stopper)
    assert calls == [
        (NAMES[0], values[NAMES[0]][0][1], 1),
        (NAMES[0], values[NAMES[0]][1][1], 3),
        (NAMES[1], values[NAMES[1]][0][1], 3),
    ]


def test_tensorboard_files_have_the_values(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        stopper, _ = train(writer)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(events.Tags()["scalars"]) == NAMES
    for name, values in expected_of(stopper).items():
        assert [(event.step, event.value) for event in events.Scalars(name)] == [
            (step, numpy.float32(value)) for step, value in values
        ]


def test_mlflow_files_have_the_values(mlflow, tmp_path):
    with mlflow.start_run():
        stopper, _ = train(mlflow)
    (folder,) = tmp_path.glob("mlflow/*/*/metrics")
    for name, values in expected_of(stopper).items():
        lines = [line.split() for line in (folder / name).read_text().splitlines()]
        assert [(int(step), float(value)) for _, value, step in lines] == values


@pytest.mark.parametrize("own_logs", ["none", "every batch", "every epoch", "every epoch, with its number"])
def test_the_file_of_a_wandb_run_has_the_values_and_those_of_training(own_logs, wandb_run, tmp_path):
    logged = []

    def log(step=None):
        logged.append(len(logged))
        wandb_run.log({"loss": logged[-1]}, step=step)

    calls = {
        "every batch": {"after_batch": log},
        "every epoch": {"after_epoch": lambda epoch: log()},
        "every epoch, with its number": {"after_epoch": log},
    }
    stopper, _ = train(wandb_run, **calls.get(own_logs, {}))
    wandb_run.finish()
    rows = rows_of_run(tmp_path)
    assert values_in(rows) == expected_of(stopper)
    assert [row["loss"] for row in rows if "loss" in row] == logged
    assert all(before["_step"] < after["_step"] for before, after in pairwise(rows))
    if own_logs == "every epoch, with its number":
        assert [row["_step"] for row in rows if "loss" in row] == list(range(NUM_EPOCHS))


def test_the_module_wandb_stands_for_its_present_run(wandb_run, tmp_path):
    import wandb

    stopper, _ = train(wandb)
    wandb_run.finish()
    assert values_in(rows_of_run(tmp_path)) == expected_of(stopper)
    with pytest.raises(ArgumentError, match=r"Call wandb\.init\(\) first"):
        as_logger(wandb)


def test_a_logger_of_lightning_has_the_values(tmp_path):
    from lightning.fabric.loggers import CSVLogger

    logger = CSVLogger(tmp_path)
    stopper, _ = train(logger)
    assert [row[NAMES[0]] for row in logger.experiment.metrics] == [
        value for _, value in expected_of(stopper)[NAMES[0]]
    ]


def test_logging_does_not_change_training(mlflow, tmp_path, capsys):
    from torch.utils.tensorboard import SummaryWriter

    def draw(name, value, step):
        return random.random(), numpy.random.rand(), torch.rand(3)

    _, expected = train()
    with SummaryWriter(tmp_path / "tensorboard") as writer:
        for log in (draw, writer, mlflow):  # mlflow starts a run with a random name
            _, found = train(log, verbose=True)
            assert differences(expected, found) == []


def test_a_log_that_fails_leaves_the_stopper_as_it_was():
    def log(name, value, step):
        if fails:
            raise OSError("no space left")

    fails = True
    model, batches = nn.Linear(4, 3), [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
    stopper = EarlyStopping(model, nn.CrossEntropyLoss(), log=log)
    with pytest.raises(OSError, match="no space left"):
        stopper.step(batches)
    assert (stopper.history, stopper.status) == ((), {})
    fails = False
    stopper.step(batches)
    assert [reading.epoch for reading in stopper.history] == [0]


def test_a_log_that_fails_leaves_the_file_of_kept_weights_as_it_was(tmp_path):
    def log(name, value, step):
        if fails:
            raise OSError("no space left")

    fails = False
    model = nn.Linear(1, 1, bias=False)
    stopper = EarlyStopping(
        model,
        lambda output, target: output.squeeze(1),
        signal=GradientDisparity(rescale="none"),
        batches=2,
        keep="lowest",
        keep_in=tmp_path / "weights.pt",
        log=log,
    )

    def step(value):
        return stopper.step([(torch.full((2, 1), each), torch.zeros(2)) for each in (0.0, value)])

    step(5.0)
    step(3.0)
    state, fails = stopper.state_dict(), True
    with pytest.raises(OSError, match="no space left"):
        step(1.0)
    assert stopper.restore() == 1
    fails = False
    step(1.0)
    assert stopper.restore() == 2
    stopper.load_state_dict(state)
    assert stopper.restore() == 1


@pytest.mark.parametrize("log", [True, "tensorboard", logging.getLogger("mine")], ids=str)
def test_anything_else_is_refused(log):
    with pytest.raises(ArgumentError, match=r"function log\(name, value, step\), a SummaryWriter.*logger 'heldin'"):
        EarlyStopping(nn.Linear(2, 2), nn.MSELoss(), log=log)
