"""Outputs: those of evaluation mode, in order, however the model hands them over, and no trace."""

from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin.errors import ArgumentError, BatchesError, UnservedError
from heldin.probing.outputs import output_tensor, outputs
from heldin.probing.probe import Probe


def delicate():
    """A model that every forward pass in training mode moves."""
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).double()


def batches(num=3, size=5):
    return [(torch.randn(size, 4, dtype=torch.float64), torch.randint(3, (size,))) for _ in range(num)]


def by_hand(model, data):
    training = model.training
    model.eval()
    with torch.no_grad():
        result = torch.cat([model(x) for x, _ in data])
    model.train(training)
    return result


@pytest.mark.parametrize("training", [True, False])
def test_outputs_are_those_of_evaluation_mode_in_order(training):
    model, data = delicate().train(training), batches()
    found = outputs(Probe(model, nn.CrossEntropyLoss()), data)
    assert torch.equal(found, by_hand(model, data))
    assert not found.requires_grad
    assert found.device.type == "cpu"
    assert all(module.training is training for module in model.modules())


def test_a_model_that_works_on_its_input_in_place_does_not_change_the_batches():
    class InPlace(nn.Linear):
        def forward(self, x):
            x -= 0.5
            return super().forward(x)

    data, probe = batches(), Probe(InPlace(4, 3).double(), nn.CrossEntropyLoss())
    before = [x.clone() for x, _ in data]
    assert torch.equal(outputs(probe, data), outputs(probe, data))
    assert all(torch.equal(x, kept) for (x, _), kept in zip(data, before, strict=True))


@pytest.mark.parametrize(("num_samples", "expected"), [(1, 1), (5, 5), (7, 7), (15, 15), (99, 15), (None, 15)])
def test_at_most_the_first_samples_are_taken(num_samples, expected):
    model, data = delicate(), batches()
    found = outputs(Probe(model, nn.CrossEntropyLoss()), data, num_samples=num_samples)
    assert torch.equal(found, by_hand(model, data)[:expected])


def test_an_iterator_is_read_no_further_than_needed():
    data = batches()
    stream = iter(data)
    found = outputs(Probe(delicate(), nn.CrossEntropyLoss()), stream, num_samples=10)
    assert len(found) == 10
    assert next(stream) is data[2]


def test_a_loader_is_read_through_a_twin():
    dataset = TensorDataset(torch.randn(12, 4).double(), torch.randint(3, (12,)))
    loader, model = DataLoader(dataset, batch_size=5, shuffle=True), delicate()
    state = torch.get_rng_state()
    found = outputs(Probe(model, nn.CrossEntropyLoss()), loader)
    assert torch.equal(torch.get_rng_state(), state)
    expected = by_hand(model, [dataset.tensors])
    assert torch.allclose(found.sort(0).values, expected.sort(0).values, rtol=1e-12)


Inception = namedtuple("Inception", ["logits", "aux_logits"])
ROWS, SCALAR = torch.ones(2, 3), torch.tensor(1.0)
RESULTS = {
    "a tensor": ROWS,
    "a dict with logits": {"loss": SCALAR, "logits": ROWS},
    "an object with logits": SimpleNamespace(loss=SCALAR, logits=ROWS),
    "a named tuple with logits": Inception(ROWS, torch.zeros(2, 3)),
    "a tuple": (ROWS, torch.zeros(2)),
    "a list": [ROWS],
    "a tuple behind its loss": (SCALAR, None, ROWS),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_the_output_is_found_in(result):
    assert output_tensor(result) is ROWS


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"scores": ROWS}, "'scores'"),
        ("text", "a str"),
        (None, "a NoneType"),
        ((SCALAR,), "a tuple"),
        (SCALAR, "a single number"),
        ({"logits": SCALAR}, "a single number"),
        ({"logits": "text"}, "'logits'"),
    ],
)
def test_what_holds_no_output_is_refused_with_a_remedy(result, found):
    with pytest.raises(UnservedError, match=found) as refused:
        output_tensor(result)
    assert "Wrap the model" in str(refused.value)


def dict_losses(model, batch):
    return F.cross_entropy(model(batch["x"])["logits"], batch["y"], reduction="none")


class Wrapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = delicate()

    def forward(self, x):
        return {"logits": self.inner(x)}


def test_batches_of_another_kind_go_through_sample_losses():
    model, data = Wrapping(), batches()
    hooks = dict(model._forward_hooks)
    probe = Probe(model, None, sample_losses=dict_losses)
    found = outputs(probe, [{"x": x, "y": y} for x, y in data], num_samples=8)
    assert torch.equal(found, by_hand(model.inner, data)[:8])
    assert dict(model._forward_hooks) == hooks == {}


def test_of_several_passes_of_the_model_the_last_counts():
    model, data = delicate(), batches(1)

    def twice(model, batch):
        model(batch[0] * 0)
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    assert torch.equal(outputs(Probe(model, None, sample_losses=twice), data), by_hand(model, data))


def test_sample_losses_that_do_not_call_the_model_are_refused_and_the_hook_is_gone():
    model = delicate()
    probe = Probe(model, None, sample_losses=lambda model, batch: model.forward(batch[0]).sum(1))
    with pytest.raises(UnservedError, match="should call the model"):
        outputs(probe, batches())
    assert not model._forward_hooks


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Found none"),
        ([torch.ones(2, 4).double()], "a Tensor"),
        ([(torch.ones(2, 4).double(), torch.zeros(3))], "equally many"),
    ],
)
def test_batches_that_cannot_serve_are_refused(data, message):
    with pytest.raises(BatchesError, match=message):
        outputs(Probe(delicate(), nn.CrossEntropyLoss()), data)


def test_outputs_of_different_shapes_are_refused():
    probe = Probe(nn.Conv1d(1, 1, 1), lambda output, target: output.mean((1, 2)))
    data = [(torch.ones(2, 1, length), torch.zeros(2)) for length in (4, 5)]
    with pytest.raises(BatchesError, match=r"\(1, 4\) and \(1, 5\)"):
        outputs(probe, data)


@pytest.mark.parametrize("num_samples", [0, -1, 2.5, True])
def test_a_number_of_samples_that_cannot_be_is_refused(num_samples):
    with pytest.raises(ArgumentError, match="num_samples"):
        outputs(Probe(delicate(), nn.CrossEntropyLoss()), batches(), num_samples=num_samples)


class Noisy(nn.Module):
    """Random, in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3).double()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) + torch.randn(len(x), 3)


def test_outputs_follow_from_the_seed_alone_and_leave_no_trace():
    model, data = Noisy(), batches()
    probe = Probe(model, nn.CrossEntropyLoss(), seed=5)
    state = torch.get_rng_state()
    found = [outputs(probe, data, seed=seed) for seed in (None, 5, 6)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert model.calls == 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_failure_half_way_leaves_no_trace():
    model, data = Noisy(), batches()
    data[1] = (data[1][0][:, :3], data[1][1])
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shapes"):
        outputs(Probe(model, nn.CrossEntropyLoss()), data)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.calls == 0


def test_outputs_inside_inference_mode_are_the_same():
    model, data = delicate(), batches()
    probe = Probe(model, nn.CrossEntropyLoss())
    with torch.inference_mode():
        inside = outputs(probe, data)
    assert torch.equal(inside, outputs(probe, data))
