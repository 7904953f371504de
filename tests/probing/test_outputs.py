"""Outputs of the model in evaluation mode, in order, and the cache of outputs of training."""

from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin.errors import ArgumentError, BatchesError, UnmeasurableError
from heldin.probing import in_order
from heldin.probing.outputs import OutputCache, output_tensor, outputs
from heldin.probing.probe import Probe


def sensitive():
    """A model that changes with every forward pass in training mode."""
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
    model, data = sensitive().train(training), batches()
    found = outputs(Probe(model, nn.CrossEntropyLoss()), data)
    assert torch.equal(found, by_hand(model, data))
    assert not found.requires_grad
    assert found.device.type == "cpu"
    assert all(module.training is training for module in model.modules())


def test_a_model_that_writes_to_its_inputs_does_not_change_the_batches():
    class InPlace(nn.Linear):
        def forward(self, x):
            x -= 0.5
            return super().forward(x)

    data, probe = batches(), Probe(InPlace(4, 3).double(), nn.CrossEntropyLoss())
    before = [x.clone() for x, _ in data]
    assert torch.equal(outputs(probe, data), outputs(probe, data))
    assert all(torch.equal(x, kept) for (x, _), kept in zip(data, before, strict=True))


@pytest.mark.parametrize(("num_samples", "expected"), [(1, 1), (5, 5), (7, 7), (15, 15), (99, 15), (None, 15)])
def test_at_most_the_first_samples_are_used(num_samples, expected):
    model, data = sensitive(), batches()
    found = outputs(Probe(model, nn.CrossEntropyLoss()), data, num_samples=num_samples)
    assert torch.equal(found, by_hand(model, data)[:expected])


def test_an_iterator_is_read_no_further_than_needed():
    data = batches()
    stream = iter(data)
    found = outputs(Probe(sensitive(), nn.CrossEntropyLoss()), stream, num_samples=10)
    assert len(found) == 10
    assert next(stream) is data[2]


Inception = namedtuple("Inception", ["logits", "aux_logits"])
ROWS, SCALAR = torch.ones(2, 3), torch.tensor(1.0)
RESULTS = {
    "a tensor": ROWS,
    "a dict with logits": {"loss": SCALAR, "logits": ROWS},
    "an object with logits": SimpleNamespace(loss=SCALAR, logits=ROWS),
    "a named tuple with logits": Inception(ROWS, torch.zeros(2, 3)),
    "a tuple": (ROWS, torch.zeros(2)),
    "a list": [ROWS],
    "a tuple after its loss": (SCALAR, None, ROWS),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_the_output_is_found_in_what_the_model_returns(result):
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
def test_a_result_without_outputs_is_refused_with_a_remedy(result, found):
    with pytest.raises(UnmeasurableError, match=found) as refused:
        output_tensor(result)
    assert "Wrap the model" in str(refused.value)


def dict_losses(model, batch):
    return F.cross_entropy(model(batch["x"])["logits"], batch["y"], reduction="none")


class Wrapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = sensitive()

    def forward(self, x):
        return {"logits": self.inner(x)}


def test_other_batches_are_passed_through_sample_losses():
    model, data = Wrapping(), batches()
    hooks = dict(model._forward_hooks)
    probe = Probe(model, None, sample_losses=dict_losses)
    found = outputs(probe, [{"x": x, "y": y} for x, y in data], num_samples=8)
    assert torch.equal(found, by_hand(model.inner, data)[:8])
    assert dict(model._forward_hooks) == hooks == {}


def test_the_last_of_several_forward_passes_counts():
    model, data = sensitive(), batches(1)

    def twice(model, batch):
        model(batch[0] * 0)
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    assert torch.equal(outputs(Probe(model, None, sample_losses=twice), data), by_hand(model, data))


def test_sample_losses_that_do_not_call_the_model_are_refused_and_the_hook_is_removed():
    model = sensitive()
    probe = Probe(model, None, sample_losses=lambda model, batch: model.forward(batch[0]).sum(1))
    with pytest.raises(UnmeasurableError, match="should call the model"):
        outputs(probe, batches())
    assert not model._forward_hooks


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Found none"),
        ([torch.ones(2, 4).double()], "a Tensor"),
        ([(torch.ones(2, 4).double(), torch.zeros(3))], "same length"),
    ],
)
def test_batches_that_cannot_be_used_are_refused(data, message):
    with pytest.raises(BatchesError, match=message):
        outputs(Probe(sensitive(), nn.CrossEntropyLoss()), data)


def test_outputs_of_different_shapes_are_refused():
    probe = Probe(nn.Conv1d(1, 1, 1), lambda output, target: output.mean((1, 2)))
    data = [(torch.ones(2, 1, length), torch.zeros(2)) for length in (4, 5)]
    with pytest.raises(BatchesError, match=r"\(1, 4\) and \(1, 5\)"):
        outputs(probe, data)


@pytest.mark.parametrize("num_samples", [0, -1, 2.5, True])
def test_an_invalid_number_of_samples_is_refused(num_samples):
    with pytest.raises(ArgumentError, match="num_samples"):
        outputs(Probe(sensitive(), nn.CrossEntropyLoss()), batches(), num_samples=num_samples)


class Noisy(nn.Module):
    """Random in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3).double()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) + torch.randn(len(x), 3)


def test_outputs_follow_from_the_seed_alone_and_nothing_is_changed():
    model, data = Noisy(), batches()
    probe = Probe(model, nn.CrossEntropyLoss(), seed=5)
    state = torch.get_rng_state()
    found = [outputs(probe, data, seed=seed) for seed in (None, 5, 6)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert model.calls == 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_failure_changes_nothing():
    model, data = Noisy(), batches()
    data[1] = (data[1][0][:, :3], data[1][1])
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shapes"):
        outputs(Probe(model, nn.CrossEntropyLoss()), data)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.calls == 0


def test_a_generator_of_batches_is_closed_before_the_streams_are_restored():
    model, state = sensitive(), torch.get_rng_state()
    loader = DataLoader(TensorDataset(torch.randn(12, 4).double(), torch.zeros(12).long()), batch_size=5, shuffle=True)
    torch.set_rng_state(state)
    found = outputs(Probe(model, nn.CrossEntropyLoss()), in_order(loader, seed=1), num_samples=6)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found, by_hand(model, [loader.dataset[:6]]))


def test_the_cache_holds_a_copy_of_the_latest_output_of_each_sample():
    cache, given = OutputCache(), torch.tensor([[1.0], [3.0]])
    assert (cache.outputs, cache.updated) == (None, False)
    cache.update([0, 2], given.requires_grad_())
    given.detach().zero_()
    cache.update(torch.tensor([2, 1]), torch.tensor([[5.0], [2.0]], dtype=torch.float64))
    assert cache.updated
    assert cache.outputs.tolist() == [[1.0], [2.0], [5.0]]
    dataset = TensorDataset(torch.zeros(5))
    assert cache.all_outputs(DataLoader(dataset)).tolist() == [[1.0], [2.0], [5.0], [0.0], [0.0]]
    assert cache.all_outputs([]).tolist() == [[1.0], [2.0], [5.0]]


@pytest.mark.parametrize(
    ("indices", "given", "message"),
    [
        ([0.5], torch.ones(1, 1), "`indices` should hold the positions.*return its index"),
        ([-1], torch.ones(1, 1), "`indices` should hold the positions"),
        ([True], torch.ones(1, 1), "`indices` should hold the positions"),
        ([0, 1], torch.ones(1, 1), "one output for each of the 2 indices"),
        ([0], torch.tensor(1.0), "one output for each of the 1 indices"),
        ([0], torch.ones(1, 2), r"should hold \(1,\) numbers per sample, as before"),
    ],
)
def test_outputs_that_cannot_be_stored_are_refused(indices, given, message):
    cache = OutputCache()
    cache.update([0], torch.ones(1, 1))
    with pytest.raises(ArgumentError, match=message):
        cache.update(indices, given)
    assert cache.outputs.tolist() == [[1.0]]


class Tokens(nn.Module):
    """Scores (m, t, C) of the tokens of a text, as models of Hugging Face return them."""

    def __init__(self, num_tokens=4, num_classes=3):
        super().__init__()
        self.scores = nn.Parameter(torch.randn(5, num_tokens, num_classes))

    def forward(self, x):
        return self.scores


@pytest.mark.parametrize("num_classes", [3, 4])
def test_classes_come_second_in_the_outputs_of_tokens(num_classes):
    model, x, y = Tokens(4, num_classes), torch.zeros(5, 2), torch.randint(num_classes, (5, 4))

    def sample_losses(model, batch):
        scores = model(batch["x"]).transpose(1, 2)
        return nn.functional.cross_entropy(scores, batch["labels"], reduction="none")

    probe = Probe(model, None, sample_losses=sample_losses)
    assert torch.equal(outputs(probe, [{"x": x, "labels": y}]), model.scores.detach().transpose(1, 2))
    probe = Probe(model, lambda scores, labels: nn.functional.cross_entropy(scores.mT, labels, reduction="none"))
    scores = model.scores.detach()  # with as many classes as tokens they are read as cross entropy reads them
    assert torch.equal(outputs(probe, [(x, y)]), scores.transpose(1, 2) if num_classes == 3 else scores)


def test_the_outputs_of_pixels_are_not_changed():
    model, x, y = nn.Conv2d(1, 3, 1), torch.randn(2, 1, 4, 4), torch.randint(3, (2, 4, 4))
    assert outputs(Probe(model, nn.CrossEntropyLoss()), [(x, y)]).shape == (2, 3, 4, 4)


def pair(outputs_of_sample, targets):
    return nn.Linear(2, outputs_of_sample), [(torch.randn(len(targets), 2), torch.as_tensor(targets))]


@pytest.mark.parametrize(
    ("num_outputs", "targets", "loss_fn"),
    [
        pytest.param(3, [0, 2, 1], nn.CrossEntropyLoss(), id="classes"),
        pytest.param(2, [[0.9, 0.1], [0.25, 0.75]], nn.CrossEntropyLoss(), id="smoothed labels"),
        pytest.param(2, [[1.0, 0.0], [0.0, 1.0]], nn.MSELoss(), id="squared error of one-hot labels"),
        pytest.param(1, [[1.0], [0.0], [0.9]], nn.BCEWithLogitsLoss(), id="two classes"),
    ],
)
def test_targets_that_are_classes_are_accepted(num_outputs, targets, loss_fn):
    model, data = pair(num_outputs, targets)
    assert outputs(Probe(model, loss_fn), data, of_classes=True).shape == (len(targets), num_outputs)


@pytest.mark.parametrize(
    ("num_outputs", "targets", "loss_fn"),
    [
        pytest.param(1, [[1.5], [-0.3]], nn.MSELoss(), id="regression"),
        pytest.param(2, [[1.5, 0.2], [-0.3, 0.1]], nn.MSELoss(), id="regression of two numbers"),
        pytest.param(2, [[1.0, 1.0], [0.0, 0.0]], nn.BCEWithLogitsLoss(), id="several labels"),
    ],
)
def test_targets_that_are_not_classes_are_refused_where_classes_are_needed(num_outputs, targets, loss_fn):
    model, data = pair(num_outputs, targets)
    probe = Probe(model, loss_fn)
    with pytest.raises(UnmeasurableError, match=r"should be classes.*Found torch.float32 of shape \(2, \d\)"):
        outputs(probe, data, of_classes=True)
    assert outputs(probe, data).shape == (2, num_outputs)
