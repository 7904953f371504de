"""What cannot be run is refused before anything is begun."""

import pytest
import torch

from heldin.errors import ArgumentError, DataError
from heldin.lab.checking import require_runnable
from heldin.lab.data import Arrays
from heldin.lab.spec import MODELS, RunSpec

GOOD = RunSpec(dataset="digits", num_samples=40, batch_size=10)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_samples": 5000}, "at most 1437"),
        ({"num_samples": None, "batch_size": 1438}, "at most 1437"),
        ({"signals": ("train_val_disparity",)}, "compares with the fold left out"),
        ({"model": "resnet18"}, r"takes samples of shape \(3, 32, 32\)"),
        ({"model": "mrnet"}, "takes exams"),
        ({"scale": 1e-6}, "leaves each layer a channel"),
        ({"dataset": "breast_cancer", "augment": True}, "Augmentation needs images"),
    ],
    ids=str,
)
def test_one_spec_that_cannot_be_run_is_found_among_others(changes, words):
    others = [GOOD.with_(seed=seed) for seed in range(3)]
    require_runnable(others)
    with pytest.raises(ArgumentError, match=words):
        require_runnable([others[0], GOOD.with_(**changes), *others[1:]])


def test_data_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="mine.npz"):
        require_runnable([GOOD, GOOD.with_(dataset="npz:mine")], tmp_path)


@pytest.mark.parametrize("model", [model for model in MODELS if model != "mrnet"])
def test_a_model_of_any_size_is_looked_at_without_memory_and_without_random_numbers(monkeypatch, model):
    channels, size = (3, 32) if model.startswith(("vgg", "resnet")) else (1, 28)
    x, y = torch.zeros(20, channels, size, size), torch.arange(20) % 2
    monkeypatch.setattr("heldin.lab.checking.load", lambda *_: Arrays("toy", x, y, x, y, 2))
    before = torch.get_rng_state()
    require_runnable([GOOD.with_(num_samples=20, model=model, scale=50.0)])
    assert torch.equal(torch.get_rng_state(), before)
