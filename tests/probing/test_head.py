"""Alignments with the weights of the last linear layer: worked examples, plain autograd, and models without one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import BatchesError, UnmeasurableError
from heldin.probing.head import head_alignments
from heldin.probing.probe import Probe
from heldin.signals import reference


def identity_head():
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.eye_(model.weight)
    return model


@pytest.mark.parametrize(
    ("z", "label", "expected"),
    [((2.0, 0.0), 0, 0.5), ((1.0, 1.0), 0, 0.0), ((1.0, -1.0), 1, -0.707107), ((0.0, 0.0), 1, 0.0)],
)
def test_worked_alignments(z, label, expected):
    batch = (torch.tensor([z], dtype=torch.float64), torch.tensor([label]))
    found = head_alignments(Probe(identity_head(), nn.CrossEntropyLoss()), [batch])
    assert found.tolist() == pytest.approx([expected], abs=1e-6)


def network(dtype=torch.float64):
    layers = [nn.Linear(4, 16), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)]
    return nn.Sequential(*layers).to(dtype)


def batches(num=3, size=6, dtype=torch.float64):
    return [(torch.randn(size, 4, dtype=dtype), torch.randint(3, (size,))) for _ in range(num)]


def by_autograd(model, head, data, seed=0):
    """The gradient of each sample's loss in the head's weights, by one backward pass per sample."""
    generator = torch.get_rng_state()
    torch.manual_seed(seed)
    gammas = []
    for x, y in data:
        losses = F.cross_entropy(model(x), y, reduction="none")
        for loss in losses:
            (gradient,) = torch.autograd.grad(loss, head.weight, retain_graph=True)
            weight = head.weight.detach().flatten()
            gammas.append(-float(F.cosine_similarity(gradient.flatten(), weight, dim=0)))
    torch.set_rng_state(generator)
    return gammas


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", [None, "5"])
def test_alignments_are_those_of_autograd(mode, name):
    model, data = network(), batches()
    probe = Probe(model, nn.CrossEntropyLoss(), mode=mode, seed=3)
    found = head_alignments(probe, data, head=name)
    assert model.training
    model.train(mode == "train")
    assert found.dtype is torch.float64
    assert found.shape == (18,)
    assert found.tolist() == pytest.approx(by_autograd(model, model[5], data, seed=3), rel=1e-10)


@pytest.mark.parametrize("ignored", [-100, 1])
def test_samples_whose_target_is_ignored_are_left_out(ignored):
    model, data = network(), batches()
    data[1][1][2:4] = ignored
    data[2][1][:] = ignored
    found = head_alignments(Probe(model, nn.CrossEntropyLoss(ignore_index=ignored), seed=3), data)
    counted = torch.cat([y for _, y in data]) != ignored
    data = [(x, torch.where(y == ignored, 0, y)) for x, y in data]
    expected = torch.tensor(by_autograd(model, model[5], data, seed=3), dtype=torch.float64)[counted]
    assert 0 < len(found) < 18
    assert torch.allclose(found, expected, rtol=1e-10)


def test_batches_without_a_sample_that_counts_are_refused():
    with pytest.raises(BatchesError, match="Found 1 batches in which all targets are -100"):
        head_alignments(Probe(nn.Linear(4, 3).double(), nn.CrossEntropyLoss()), [(X, torch.full((2,), -100))])


def test_soft_targets_are_those_of_autograd():
    model, data = network().eval(), [(x, torch.rand(6, 3).double().softmax(1)) for x, _ in batches()]
    found = head_alignments(Probe(model, nn.CrossEntropyLoss(), mode="eval"), data)
    assert found.tolist() == pytest.approx(by_autograd(model, model[5], data), rel=1e-10)


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1.0, 1e20, 1e200])
def test_alignments_do_not_depend_on_the_scale_of_the_weights(scale):
    """The inputs are scaled inversely, so that logits and delta stay the same."""
    weight = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    z, labels = torch.tensor([[1.0, 2.0], [-3.0, 1.0]], dtype=torch.float64), torch.tensor([0, 1])
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(weight * scale)
    found = head_alignments(Probe(model, nn.CrossEntropyLoss()), [(z / scale, labels)])
    deltas = (z @ weight.T).softmax(1) - F.one_hot(labels, 2)
    expected = [reference.alignment(row, weight, delta) for row, delta in zip(z, deltas, strict=True)]
    assert min(map(abs, expected)) > 0.1
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_a_well_fitted_sample_has_its_direction_although_one_minus_p_rounds_to_zero():
    z = torch.tensor([[50.0, 0.0]], dtype=torch.float64)  # 1 - p = 2e-22
    found = head_alignments(Probe(identity_head(), nn.CrossEntropyLoss()), [(z, torch.tensor([0]))])
    assert found.item() == pytest.approx(0.5, rel=1e-12)


def test_a_sample_without_a_gradient_has_alignment_zero():
    z = torch.tensor([[1e4, 0.0]], dtype=torch.float64)
    found = head_alignments(Probe(identity_head(), nn.CrossEntropyLoss()), [(z, torch.tensor([0]))])
    assert found.item() == 0.0


def test_nan_stays_nan():
    z = torch.tensor([[float("nan"), 0.0], [1.0, -1.0]], dtype=torch.float64)
    found = head_alignments(Probe(identity_head(), nn.CrossEntropyLoss()), [(z, torch.tensor([0, 1]))])
    assert found.isnan().tolist() == [True, False]


class TwoHeads(nn.Module):
    """Its output comes from a head that is not the last linear layer to run."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.main, self.aux = nn.Linear(4, 3), nn.Linear(4, 3)
        self.double()

    def forward(self, x):
        main, aux = self.main(input=x), self.aux(x)
        return self.form(main, aux)


@pytest.mark.parametrize(
    "form",
    [
        lambda main, aux: main,
        lambda main, aux: (main, aux),
        lambda main, aux: {"aux": aux, "logits": main},
        lambda main, aux: main.view(-1, 3),
    ],
)
def test_the_head_is_the_layer_whose_output_the_model_returns(form):
    model, data = TwoHeads(form), batches()
    found = head_alignments(Probe(model, nn.CrossEntropyLoss()), data)
    model.form = lambda main, aux: main
    assert found.tolist() == pytest.approx(by_autograd(model, model.main, data), rel=1e-10)


def test_the_head_can_be_named():
    model, data = TwoHeads(lambda main, aux: aux / 2.0), batches()
    found = head_alignments(Probe(model, nn.CrossEntropyLoss()), data, head="aux")
    model.form = lambda main, aux: aux
    assert found.tolist() == pytest.approx(by_autograd(model, model.aux, data), rel=1e-10)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1)),
        nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 3, 1), nn.Flatten()),
    ],
    ids=["in-place activation", "log softmax", "convolution"],
)
def test_a_model_without_a_linear_head_is_refused_with_a_remedy(model):
    with pytest.raises(UnmeasurableError, match='head="fc"'):
        head_alignments(Probe(model.double(), nn.CrossEntropyLoss()), batches())
    assert all(not module._forward_hooks for module in model.modules())


def test_a_name_that_is_not_a_linear_layer_is_refused():
    with pytest.raises(UnmeasurableError, match=r"'main', 'aux'.* Did you mean 'main'\?"):
        head_alignments(Probe(TwoHeads(None), nn.CrossEntropyLoss()), batches(), head="maine")


X = torch.randn(2, 4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": X}, "a dict"),
        ((X, torch.tensor([0, 3])), r"0\.\.2"),
        ((X, torch.tensor([0, -1])), r"0\.\.2"),
        ((X, torch.tensor([0])), r"shape \(1,\)"),
        ((X, torch.tensor([[0.2, 0.2, 0.2], [1.0, 0.0, 0.0]])), "sum to 1"),
        ((X, torch.tensor([[2.0, -1.0, 0.0], [1.0, 0.0, 0.0]])), "sum to 1"),
        ((X, torch.tensor([0.0, 1.0])), "torch.float32"),
        ((X, ["cat", "dog"]), "a list"),
    ],
)
def test_targets_that_are_not_classes_are_refused(batch, message):
    with pytest.raises(UnmeasurableError, match=message):
        head_alignments(Probe(nn.Linear(4, 3).double(), nn.CrossEntropyLoss()), [batch])


def test_a_single_output_is_refused():
    with pytest.raises(UnmeasurableError, match="at least two classes"):
        head_alignments(Probe(nn.Linear(4, 1).double(), nn.MSELoss()), [(X, torch.zeros(2, 1))])


def test_no_batches_are_refused():
    with pytest.raises(BatchesError, match="Found none"):
        head_alignments(Probe(identity_head(), nn.CrossEntropyLoss()), [])


@pytest.mark.parametrize("fails", [False, True])
def test_alignments_change_nothing(fails):
    model, data = network(), batches()
    called = []
    model[5].register_forward_hook(lambda *arguments: called.append(1))
    model[0].weight.grad = torch.ones_like(model[0].weight)
    if fails:
        data[1] = (data[1][0], data[1][1] + 7)
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    hooks = [dict(module._forward_hooks) for module in model.modules()]
    if fails:
        with pytest.raises(UnmeasurableError):
            head_alignments(Probe(model, nn.CrossEntropyLoss()), data)
    else:
        head_alignments(Probe(model, nn.CrossEntropyLoss()), data)
    assert len(called) == (2 if fails else 3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert [dict(module._forward_hooks) for module in model.modules()] == hooks
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[5].weight.grad is None


def test_the_head_is_found_in_half_precision():
    model, data = network(torch.bfloat16), batches(dtype=torch.bfloat16)
    found = head_alignments(Probe(model, nn.CrossEntropyLoss()), data)
    assert torch.isfinite(found).all()
    assert found.abs().max() <= 1.0
