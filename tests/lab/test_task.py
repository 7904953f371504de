"""What a task may return, and how everything else is refused before anything is trained."""

import warnings

import pytest
import torch
from tests import tasks
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, random_split

from heldin.errors import HeldinError
from heldin.lab.data import Items
from heldin.lab.task import read_data
from heldin.lab.task_source import TaskSource, check_task

SHARED = tasks.network()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(tasks.data())


def changed(**changes):
    return lambda: tasks.task(**changes)


def labelled(labels):
    return TensorDataset(torch.randn(len(labels), 6), torch.tensor(labels))


def not_seeded():
    made = tasks.task()
    generator = torch.Generator()
    generator.seed()  # from the operating system
    with torch.no_grad():
        made.model[0].weight.normal_(generator=generator)
    return made


def split_by_the_seed():
    train, test = random_split(tasks.data(), [40, 8])
    return tasks.task(train=train, test=test)


def optimizer_of_another_model():
    return tasks.task(optimizer=torch.optim.Adam(tasks.network().parameters()))


def scheduler_of_another_optimizer():
    other = torch.optim.Adam(tasks.network().parameters())
    return tasks.task(scheduler=torch.optim.lr_scheduler.StepLR(other, 1))


def fails():
    raise RuntimeError("no such file: images")


def of_one_output():
    model = nn.Linear(6, 1)
    return tasks.task(model=model, loss=nn.MSELoss())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(lambda: None, "should return a heldin.lab.Task.*Found None", id="nothing"),
        pytest.param(lambda: (1, 2), "Found a tuple of 2.*return Task", id="a tuple"),
        pytest.param(
            lambda: {"model": nn.Linear(1, 2)}, "Found no loss and no optimizer and no train", id="too little"
        ),
        pytest.param(lambda: {**tasks.as_dict(), "batchsize": 3}, "Did you mean 'batch_size'", id="an unknown key"),
        pytest.param(changed(train=None), "Found no train", id="no training data"),
        pytest.param(changed(train=[]), "should have samples. Found none", id="empty training data"),
        pytest.param(changed(train=Stream()), "__len__ and __getitem__.*Found a Stream", id="an iterable dataset"),
        pytest.param(changed(train=DataLoader(tasks.data())), "loader.dataset", id="a loader"),
        pytest.param(changed(train=[1.0, 2.0] * 10), r"pairs \(input, class\).*Found 1.0 at index 0", id="no pairs"),
        pytest.param(changed(train=[(torch.ones(6), 0.5)] * 20), "class numbers.*Found 0.5.*regression", id="floats"),
        pytest.param(changed(train=[("text", 0)] * 20), "a tensor and a class number", id="texts"),
        pytest.param(
            changed(train=[(torch.ones(6), 0), (torch.ones(5), 1)] * 10), "one shape. Found .5,. and .6,.", id="shapes"
        ),
        pytest.param(changed(train=labelled([0, 1, 3] * 8)), "from 0 to 2.*Found 0 to 3", id="labels out of range"),
        pytest.param(changed(test=labelled([-1, 1])), "Found -1 to", id="negative labels"),
        pytest.param(
            lambda: tasks.task(model=nn.Linear(5, 3)),
            r"inputs of shape \(6,\). It failed",
            id="a model of other inputs",
        ),
        pytest.param(of_one_output, r"class scores of shape \(m, classes\)", id="one output"),
        pytest.param(changed(loss=nn.MSELoss()), "loss of classes", id="a loss of numbers"),
        pytest.param(changed(loss=nn.CrossEntropyLoss), "Write CrossEntropyLoss", id="the class of a loss"),
        pytest.param(
            optimizer_of_another_model, "should train the parameters of its `model`", id="another's optimizer"
        ),
        pytest.param(scheduler_of_another_optimizer, "a scheduler of its `optimizer`", id="another's scheduler"),
        pytest.param(
            lambda: tasks.task(model=SHARED), "new model at each call. Found the same", id="one model for all"
        ),
        pytest.param(not_seeded, "same initial weights for the same seed", id="not seeded"),
        pytest.param(split_by_the_seed, "same data for every seed.*manual_seed", id="data that depends on the seed"),
        pytest.param(changed(batch_size=100), "`batch_size` should be at most 48", id="a large batch"),
        pytest.param(changed(epochs=0), "`epochs` of <lambda> should be .* Found `epochs = 0`", id="no epochs"),
        pytest.param(
            fails, r"failed: RuntimeError: no such file: images \(test_task.py, line \d+\)", id="an exception"
        ),
        pytest.param(lambda seed: None, "called without arguments. Found seed", id="an argument"),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(function, message):
    with pytest.raises(HeldinError, match=message) as refused:
        check_task(TaskSource.find(function))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("function", [tasks.task, tasks.as_dict, tasks.AsClass, tasks.with_scheduler, tasks.augmented])
def test_functions_dicts_and_classes_are_tasks(function):
    checked = check_task(TaskSource.find(function))
    assert checked.spec.epochs == 4
    assert checked.num_train == 48
    assert "gradient_disparity" in checked.spec.signals
    assert checked.notes == ()


def test_a_model_without_a_linear_head_leaves_out_the_signals_that_need_one():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3))

        def forward(self, x):
            return x @ self.weight

    checked = check_task(TaskSource.find(lambda: tasks.task(model=Head())))
    assert "gwa" not in checked.spec.signals
    assert "gwa" in checked.notes[0]


def test_equal_weights_for_all_seeds_are_noted():
    def pretrained():
        torch.manual_seed(0)
        return tasks.task()

    (note,) = check_task(TaskSource.find(pretrained)).notes
    assert "All seeds start from the same weights" in note


def test_random_transforms_without_unaugmented_samples_are_noted():
    (note,) = check_task(TaskSource.find(changed(train=tasks.Noisy()))).notes
    assert "`train` has random transforms, so folds are validated on augmented samples" in note
    assert "give `unaugmented` too" in note


def test_a_loss_of_numbers_is_refused_without_a_warning_of_torch():
    with warnings.catch_warnings(record=True) as caught, pytest.raises(HeldinError, match="loss of classes"):
        warnings.simplefilter("always")
        check_task(TaskSource.find(changed(loss=nn.MSELoss())))
    assert caught == []


def test_stored_tensors_are_held_and_other_datasets_are_read_each_time():
    held, _ = read_data(tasks.task(), "task")
    assert torch.equal(held.x_train, tasks.data().tensors[0])
    read, _ = read_data(tasks.augmented(), "task")
    assert isinstance(read.x_train, Items)
    assert read.x_train.shape == (48, 6)
    assert not torch.equal(read.x_train[:2], read.x_train[:2])  # the transforms run each time
    assert torch.equal(read.x_train.select(torch.tensor([5])).indices, torch.tensor([5]))
    assert torch.equal(read.x_unaugmented, held.x_train)
    assert torch.equal(read.y_train, held.y_train)


def test_the_fingerprint_changes_with_any_sample():
    _, first = read_data(tasks.task(), "task")
    other = tasks.data()
    other.tensors[0][-1, -1] += 1e-6
    assert read_data(tasks.task(train=other), "task")[1] != first
    assert read_data(tasks.task(), "task")[1] == first
    assert first.startswith("48+30-")
