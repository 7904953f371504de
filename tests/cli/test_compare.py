"""`heldin compare`."""

import json
import runpy

import numpy
import pytest

from heldin.lab.task_source import TaskSource, check_task

TASK = "from tests import tasks\n\ndef task():\n    return tasks.task()\n"


@pytest.fixture
def arrays(tmp_path):
    def write(name, shape, *, test=True, dtype=numpy.uint8):
        draw = numpy.random.default_rng(0)
        labels = numpy.arange(24) % 2
        content = {"x_train": draw.integers(0, 256, (24, *shape)).astype(dtype), "y_train": labels}
        if test:
            content |= {"x_test": content["x_train"][:10], "y_test": labels[:10]}
        numpy.savez(tmp_path / name, **content)
        return tmp_path / name

    return write


def test_the_template_runs_as_it_is(heldin, tmp_path):
    assert heldin("compare", "--new", "task.py").code == 0
    found = heldin("compare", "task.py", "--epochs", 2, "--seeds", 1, "--folds", 0, "--jobs", 1, "--quiet")
    assert found.code == 0
    assert [line.partition(".")[0] for line in found.out.splitlines()[:5]] == ["1", "2", "3", "4", "5"]
    assert "heldin-runs/compare-task.html" in found.out
    assert (tmp_path / "heldin-runs" / "compare-task.html").exists()
    made = runpy.run_path("task.py")["task"]()
    images, _labels = made.train.tensors
    assert len(images) == 300
    assert made.epochs == 50


def test_every_optional_line_of_the_template_can_be_used(heldin, tmp_path):
    heldin("compare", "--new", "task.py")
    lines = (tmp_path / "task.py").read_text().splitlines()
    optional = [line for line in lines if line.lstrip().startswith("# ")]
    assert optional
    (tmp_path / "task.py").write_text(
        "\n".join(line.replace("# ", "", 1) if line in optional else line for line in lines)
    )
    checked = check_task(TaskSource.find(tmp_path / "task.py"))
    assert (checked.num_train, checked.notes) == (300, ())
    assert runpy.run_path("task.py")["task"]().scheduler is not None


def test_a_template_does_not_replace_a_file(refused, tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    assert "already there" in refused("compare", "--new", "task.py")
    assert (tmp_path / "task.py").read_text() == TASK
    assert "--new task.py" in refused("compare", "--new", "task.txt")


def test_the_answer_for_programs(heldin, tmp_path):
    (tmp_path / "mine.py").write_text(TASK)
    found = heldin("compare", "mine.py", "--seeds", "0,2", "--folds", 2, "--jobs", 1, "--json", "--quiet")
    answer = json.loads(found.out)
    assert len(answer["lines"]) == 5
    assert {"epoch", "method", "test error"} <= {*answer["methods"][0]}
    assert heldin("status").out.count("task:mine ") == 6


@pytest.mark.parametrize(("shape", "model"), [((9, 9), "resnet8"), ((3, 16, 12), "resnet8"), ((8, 8, 3), "cnn")])
def test_arrays_of_any_size_in_gray_or_colour(heldin, arrays, shape, model):
    options = ("--scale", 0.1, "--epochs", 2, "--batch-size", 6, "--seeds", 1, "--folds", 0, "--jobs", 1, "--quiet")
    found = heldin("compare", "--data", arrays("my.npz", shape), "--model", model, *options)
    assert found.code == 0, found.err
    assert "Best here" in found.out


def test_arrays_without_a_test_set(heldin, arrays):
    file = arrays("my.npz", (5,), test=False, dtype=numpy.float32)
    options = ("--model", "mlp", "--scale", 0.05, "--epochs", 2, "--batch-size", 6, "--seeds", 1, "--folds", 2)
    found = heldin(
        "compare",
        "--data",
        file,
        *options,
        "--optimizer",
        "AdamW",
        "--optimizer-options",
        "weight_decay=0.1",
        "--jobs",
        1,
        "--quiet",
    )
    assert found.code == 0, found.err
    assert "There is no test set" in found.out
    assert heldin("table").code == heldin("report").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs a task, or data. Found neither"),
        (("nowhere.py",), "Found no file nowhere.py"),
        (("mine.py", "--model", "cnn"), "has its own model, data and optimizer. Found --model too"),
        (("--data", "nowhere.npz"), "Found no file nowhere.npz"),
        (("--data", "mine.py"), "should be an .npz file"),
        (("wrong.py",), "SyntaxError: '(' was never closed (line 2: task = Task()."),
        (("mine.py", "--seeds", "x"), "--seeds should be"),
        (("mine.py", "--method", "gradient_disparty"), "label of a signal"),
        (("mine.py", "--device", "cuda"), "should be a device of this machine"),
        (("--dataset", "digits", "--optimizer", "AdamV"), "Did you mean 'Adam'"),
        (("--dataset", "digits", "--optimizer", "AdamW", "--optimizer-options", "beta=1"), "Did you mean 'betas'"),
        (("--dataset", "digits", "--scheduler", "CosineAnnealing"), "Did you mean 'CosineAnnealingLR'"),
        (("--dataset", "digits", "--scheduler", "StepLR"), "step_size"),
        (("--dataset", "digits", "--data", "no_folder", "--scheduler", "StepLR"), "step_size"),  # digits need no files
    ],
)
def test_wrong_input_is_refused_with_the_remedy(refused, tmp_path, arguments, message):
    (tmp_path / "mine.py").write_text(TASK)
    (tmp_path / "wrong.py").write_text("from heldin.lab import Task\ntask = Task(\n")
    if "cuda" in arguments and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    assert message in refused("compare", *arguments)
    assert not list(tmp_path.glob("heldin-runs/runs/*"))
