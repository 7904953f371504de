"""Loss, error, top five, AUC; against scikit-learn where it has them."""

import math

import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score, top_k_accuracy_score
from torch import nn

from heldin.lab.losses import OneHotMSE, build_loss
from heldin.lab.metrics import auc, evaluate, metrics


def test_loss_error_and_top5_are_those_of_scikit_learn():
    outputs, y = torch.randn(200, 10), torch.randint(10, (200,))
    found = metrics(nn.CrossEntropyLoss(), outputs, y)
    assert found["loss"] == pytest.approx(log_loss(y, outputs.double().softmax(1), labels=range(10)), rel=1e-5)
    assert found["error"] == pytest.approx(1 - float((outputs.argmax(1) == y).float().mean()))
    assert found["top5"] == pytest.approx(1 - top_k_accuracy_score(y, outputs, k=5, labels=range(10)))
    assert "auc" not in found


def test_auc_is_that_of_scikit_learn_also_with_ties():
    scores, y = torch.randint(5, (100,)).float(), torch.randint(2, (100,))
    assert auc(scores, y) == pytest.approx(roc_auc_score(y, scores))
    assert math.isnan(auc(scores, torch.zeros(100, dtype=torch.long)))


def test_two_classes_have_an_auc_and_no_top5():
    assert set(metrics(nn.CrossEntropyLoss(), torch.randn(9, 2), torch.arange(9) % 2)) == {"loss", "error", "auc"}


def test_evaluation_is_in_evaluation_mode_and_puts_the_mode_back():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    x, y = torch.randn(700, 4), torch.randint(3, (700,))
    first, second = (evaluate(model, nn.CrossEntropyLoss(), x, y) for _ in range(2))
    assert first == second
    assert model.training


def test_mean_squared_error_is_against_one_hot_targets():
    output = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    target = torch.tensor([0, 1])
    assert OneHotMSE("none")(output, target).tolist() == [0.0, 0.25]
    assert float(build_loss("mse")(output, target)) == 0.125
    assert metrics(build_loss("mse"), output, target)["loss"] == 0.125
