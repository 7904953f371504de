"""Where tasks come from, and their identity."""

import sys
import threading

import pytest
from tests import tasks

from heldin.errors import HeldinError
from heldin.lab.task_source import TaskSource, check_task

FILE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from beside import WIDTH, network

def task():
    x = torch.arange(96.0).reshape(24, 4) / 96
    model = network()
    return {
        "model": model, "loss": nn.CrossEntropyLoss(), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "train": TensorDataset(x, torch.arange(24) % 2), "epochs": 2, "batch_size": 4,
    }

def another():
    return task()
"""
BESIDE = """
from torch import nn
WIDTH = 3
def network():
    return nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "my_task.py").write_text(FILE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "my_task.py"
    sys.modules.pop("beside", None)


def spec_of(task):
    return check_task(TaskSource.find(task)).spec


def test_a_file_may_import_what_is_beside_it(file):
    spec = spec_of(file)
    assert spec.dataset.startswith("task:my_task-")
    assert (spec.task, spec.epochs, spec.num_test) == ("my_task", 2, 0)
    assert str(file.parent) not in sys.path


def test_a_function_of_a_file_or_a_module_is_named_after_a_colon(file, monkeypatch):
    assert spec_of(f"{file}:another").task == "my_task"
    monkeypatch.syspath_prepend(file.parent)
    assert spec_of("my_task:another").task == "another"
    sys.modules.pop("my_task", None)


def test_the_identity_is_that_of_source_and_data(file):
    first = spec_of(file)
    assert spec_of(file).id == first.id
    source, data = first.task_hashes
    file.write_text(FILE.replace("lr=0.1", "lr=0.2"))
    assert spec_of(file).task_hashes[0] != source
    assert spec_of(file).task_hashes[1] == data
    file.write_text(FILE.replace("/ 96", "/ 95"))
    assert spec_of(file).task_hashes[1] != data


def test_a_file_beside_the_task_belongs_to_its_source(file):
    before = spec_of(file).task_hashes
    (file.parent / "beside.py").write_text(BESIDE.replace("WIDTH = 3", "WIDTH = 15"))
    assert spec_of(file).task_hashes[0] != before[0]
    assert TaskSource.find(file).call(0).model[0].out_features == 15  # imported again


def test_a_function_is_a_task_too():
    assert spec_of(tasks.task).task == "task"
    assert spec_of(tasks.task).id == spec_of(tasks.task).id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "import no_such_module", r"cannot be imported: ModuleNotFoundError.*my_task.py, line 1", id="import"
        ),
        pytest.param("def task(:\n", r"cannot be imported: SyntaxError.*line 1", id="syntax"),
        pytest.param("import sys\nsys.exit(1)", "cannot be imported: SystemExit", id="exit"),
        pytest.param(
            "def train():\n    pass", "should have a function `task`. Found train. Name one", id="another name"
        ),
        pytest.param(
            "from heldin.lab import Task\ndef tok():\n    pass\ndef mine():\n    return Task()",
            "Found mine, tok. Name one: .*my_task.py:mine",
            id="a function that returns a task before a helper",
        ),
        pytest.param("task = 3", "should have a function `task`. Found none", id="no function"),
    ],
)
def test_a_file_that_is_not_a_task_is_refused(file, text, message):
    file.write_text(text)
    with pytest.raises(HeldinError, match=message) as refused:
        spec_of(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.py", "Found no file nowhere.py in .*`heldin compare --new task.py`"),
        ("no_such_package.module:function", "cannot be imported: ModuleNotFoundError"),
        ("just words", "Found 'just words'"),
        (3, "Found 3"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(reference, message):
    with pytest.raises(HeldinError, match=message):
        spec_of(reference)


def test_a_task_that_workers_cannot_receive_is_refused_for_several_jobs():
    lock = threading.Lock()

    def locked():
        with lock:
            return tasks.task()

    source = TaskSource.find(locked)
    source.require_picklable(1)
    with pytest.raises(HeldinError, match="cannot be sent to them.*set jobs=1"):
        source.require_picklable(2)
    TaskSource.find(tasks.task).require_picklable(2)


def test_a_task_that_changes_while_it_runs_is_refused(file):
    spec = spec_of(file)
    file.write_text(FILE.replace("lr=0.1", "lr=0.2"))
    with pytest.raises(HeldinError, match="has changed since this command was started"):
        TaskSource.find(file).build(spec)


def test_the_function_named_task_is_proposed_first(file):
    file.write_text("def tok():\n    pass\ndef task():\n    pass\n")
    with pytest.raises(
        HeldinError, match="should have a function `nope`. Found task, tok. Name one: .*my_task.py:task"
    ):
        TaskSource.find(f"{file}:nope").load()
