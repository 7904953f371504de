"""The registries of models, initial weights, losses and optimizers."""

import math

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError
from heldin.lab.evaluation import is_wide, outputs_of
from heldin.lab.registry import (
    INITS,
    LOSSES,
    MODELS,
    OPTIMIZERS,
    TORCH_OPTIMIZERS,
    OneHotMSE,
    build_model,
    build_optimizer,
    build_scheduler,
)
from heldin.lab.spec import RunSpec

SHAPES = {"alexnet": (1, 28, 28), "mrnet": (4, 3, 64, 64), "fully_connected": (2, 5)}
WIDE_MODELS = [name for name in MODELS if name.startswith(("alexnet", "vgg", "mrnet"))] + ["resnet18", "resnet34"]
OUTPUT = torch.tensor([[1.0, 0.0], [0.5, 0.5], [3.0, -1.0]])
TARGET = torch.tensor([0, 1, 1])
EXPECTED_LOSSES = {
    "mse": torch.tensor([0.0, 0.25, 6.5]),  # the last: (3 squared + 2 squared) / 2
    "cross_entropy": torch.tensor([1 + math.exp(-1), 2.0, 1 + math.exp(4)]).log(),
}


@pytest.mark.parametrize(
    ("field", "registry"), [("model", MODELS), ("init", INITS), ("loss", LOSSES), ("optimizer", OPTIMIZERS)]
)
def test_a_spec_accepts_every_entry_also_one_added_later(field, registry, monkeypatch):
    for name in registry:
        RunSpec(**{field: name})
    monkeypatch.setitem(registry, "mine", next(iter(registry.values())))
    RunSpec(**{field: "mine"})


@pytest.mark.parametrize("name", MODELS)
def test_every_model_gives_one_logit_per_class(name):
    shape = SHAPES.get(name, (3, 32, 32))
    model = build_model(name, shape, 7, scale=0.1).eval()
    assert model(torch.randn(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", WIDE_MODELS)
def test_wide_models_evaluate_with_channels_last_and_keep_their_weights_as_they_are(name):
    shape = SHAPES.get(name, (3, 32, 32))
    model = build_model(name, shape, 7)
    x, strides = torch.randn(5, *shape), [p.stride() for p in model.parameters()]
    torch.testing.assert_close(outputs_of(model, x, channels_last=True), outputs_of(model, x), rtol=1e-4, atol=1e-5)
    assert [p.stride() for p in model.parameters()] == strides


@pytest.mark.parametrize("name", MODELS)
def test_a_wide_network_has_64_channels_or_more_in_every_convolution(name):
    shape = SHAPES.get(name, (3, 32, 32))
    assert is_wide(build_model(name, shape, 10)) == (name in WIDE_MODELS)
    assert not is_wide(build_model(name, shape, 10, scale=0.5))


def test_scale_multiplies_the_width():
    assert build_model("fully_connected", (4,), 3, scale=0.1)[1].out_features == 50


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("vgg13", (1, 28, 28), r"samples of shape \(3, 32, 32\). Found shape \(1, 28, 28\). Choose another dataset"),
        ("mrnet", (3, 32, 32), r"samples of shape \(slices, 3, h, w\). Found shape \(3, 32, 32\)"),
        ("alexnet", (30,), r"Found shape \(30,\)"),
        ("resnet43", (3, 32, 32), "Did you mean 'resnet34'"),
        ("not_installed:build", (4,), "package.module:function.*No module named 'not_installed'"),
        ("math:build", (4,), "package.module:function.*no attribute 'build'"),
    ],
)
def test_samples_that_do_not_fit_and_unknown_models_are_refused(name, shape, message):
    with pytest.raises(ArgumentError, match=message):
        build_model(name, shape, 10)


def test_a_model_of_the_user_is_imported(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def build(shape, num_classes, scale):\n"
        "    return nn.Linear(shape[0], int(num_classes * scale))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = build_model("my_models:build", (4,), 3, scale=2.0, init="he_normal")
    assert (model.in_features, model.out_features) == (4, 6)
    assert not model.bias.any()


@pytest.mark.parametrize(
    ("init", "std"), [("he_normal", (2 / 400) ** 0.5), ("xavier_uniform", (2 / 900) ** 0.5)], ids=str
)
def test_initial_weights_have_the_expected_spread_and_biases_are_zero(init, std):
    layer = build_model("fully_connected", (400,), 3, init=init)[1]
    assert float(layer.weight.detach().std()) == pytest.approx(std, rel=0.02)
    assert not layer.bias.any()


def test_default_weights_are_those_of_torch():
    torch.manual_seed(0)
    ours = build_model("fully_connected", (4,), 3)[1].weight
    torch.manual_seed(0)
    assert torch.equal(ours, nn.Linear(4, 500).weight)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_single_samples_and_their_mean(name):
    loss = LOSSES[name]()
    mean = loss(OUTPUT, TARGET)
    loss.reduction = "none"
    assert loss(OUTPUT, TARGET).tolist() == pytest.approx(EXPECTED_LOSSES[name].tolist())
    assert float(mean) == pytest.approx(float(EXPECTED_LOSSES[name].mean()))


def test_the_squared_error_keeps_the_precision_of_the_outputs():
    output = OUTPUT.double().requires_grad_()
    loss = OneHotMSE()(output, TARGET)
    assert loss.dtype == torch.float64
    loss.backward()
    difference = torch.tensor([[0.0, 0.0], [0.5, -0.5], [3.0, -2.0]], dtype=torch.float64)
    assert torch.allclose(output.grad, difference / 3)  # twice the difference, over 2 outputs and 3 samples


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_learning_rate_and_weight_decay(name):
    weight = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS[name]([weight], lr=0.03, weight_decay=0.01)
    weight.grad = torch.ones(3)
    optimizer.step()
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.03, 0.01)
    assert bool((weight < 1.0).all())


@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_every_optimizer_of_torch_is_known_by_its_name(name):
    model = nn.Linear(3, 2, bias=False)  # Muon trains matrices only
    optimizer = build_optimizer(name, model.parameters(), learning_rate=0.03)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert optimizer.defaults["lr"] == 0.03


def test_options_of_an_optimizer_are_python_values():
    options = ("betas=(0.8, 0.9)", "weight_decay=0.1", "amsgrad=True")
    found = build_optimizer("AdamW", nn.Linear(1, 1).parameters(), learning_rate=0.1, options=options).defaults
    assert (found["betas"], found["weight_decay"], found["amsgrad"]) == ((0.8, 0.9), 0.1, True)
    assert build_optimizer("AdamW", nn.Linear(1, 1).parameters(), learning_rate=0.1).defaults["weight_decay"] == 0.0


@pytest.mark.parametrize(
    ("name", "options"),
    [("CosineAnnealingLR", ["T_max=5"]), ("ReduceLROnPlateau", ["mode=min"]), ("MultiStepLR", ["milestones=[2, 4]"])],
)
def test_schedulers_are_known_by_their_names(name, options):
    optimizer = build_optimizer("sgd", nn.Linear(1, 1).parameters(), learning_rate=0.1)
    assert type(build_scheduler(name, optimizer, options)).__name__ == name
    assert build_scheduler(None, optimizer) is None


def test_momentum_is_sgd_with_momentum():
    (group,) = OPTIMIZERS["momentum"]([nn.Parameter(torch.ones(1))], lr=0.1, weight_decay=0.0).param_groups
    assert group["momentum"] == 0.9
