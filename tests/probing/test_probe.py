"""The probe: which gradients it takes, and what it refuses."""

from __future__ import annotations

import queue
import warnings
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import ArgumentError, BatchesError, HeldinWarning, LossError, NoSpreadError, NotFiniteError
from heldin.probing.batches import moved
from heldin.probing.probe import Probe
from heldin.signals import reference


def batches(num=4, size=6):
    return [(torch.randn(size, 3), torch.randint(2, (size,))) for _ in range(num)]


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def per_sample(output, target):
    return F.cross_entropy(output, target, reduction="none")


RESCALINGS = ["std", "std_detached", "minmax", "none", "grad_std", "pooled_std"]


@pytest.mark.parametrize("rescale", RESCALINGS)
def test_rows_are_the_gradients_of_plain_backward_passes(rescale):
    model, data = net(), batches()
    found = Probe(model, per_sample).gradients(data, rescale).matrix()
    assert torch.allclose(found, reference.batch_gradients(model, per_sample, data, rescale), rtol=1e-4, atol=1e-6)


def test_all_rescalings_at_once_equal_each_by_itself():
    model, data = net(), batches()
    probe = Probe(model, per_sample)
    together = probe.collect(data, RESCALINGS)
    for rescale in RESCALINGS:
        assert torch.allclose(together[rescale].matrix(), probe.gradients(data, rescale).matrix(), rtol=1e-6)


def test_each_batch_goes_forward_once_for_all_rescalings():
    model, data = net(), batches(num=3)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    Probe(model, per_sample).collect(data, RESCALINGS)
    assert len(calls) == 3


def test_sparse_gradients_are_taken_in_full():
    model = nn.Sequential(nn.Embedding(7, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))
    data = [(torch.randint(7, (5, 2)), torch.randint(2, (5,))) for _ in range(3)]
    found = Probe(model, per_sample).gradients(data, "none").matrix()
    assert torch.allclose(found, reference.batch_gradients(model, per_sample, data, "none"), atol=1e-6)


def test_frozen_parameters_take_no_part():
    model = net()
    model[0].requires_grad_(False)
    gradients = Probe(model, per_sample).gradients(batches())
    assert gradients.num_parameters == sum(p.numel() for p in model[2].parameters())


def test_tied_weights_are_counted_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    data = batches()
    gradients = Probe(model, per_sample).gradients(data, "none")
    assert gradients.num_parameters == sum(p.numel() for p in model.parameters())
    assert torch.allclose(gradients.matrix(), reference.batch_gradients(model, per_sample, data, "none"), atol=1e-6)


def test_dropout_is_on_in_train_mode_and_off_in_eval_mode():
    model, data = nn.Sequential(nn.Dropout(0.5), net()), batches(num=2)
    same = [data[0], data[0]]
    on = Probe(model, per_sample, mode="train").gradients(same).matrix()
    off = Probe(model, per_sample, mode="eval").gradients(same).matrix()
    assert not torch.equal(on[0], on[1])
    assert torch.equal(off[0], off[1])


def test_dropout_follows_from_the_seed_alone():
    model, data = nn.Sequential(nn.Dropout(0.5), net()), batches()
    first = Probe(model, per_sample, seed=1).gradients(data).matrix()
    torch.rand(17)
    assert torch.equal(first, Probe(model, per_sample, seed=1).gradients(data).matrix())
    assert not torch.equal(first, Probe(model, per_sample, seed=2).gradients(data).matrix())


def test_autocast_around_the_probe_is_left_out_unless_asked_for():
    model, data = net(), batches()
    plain = Probe(model, per_sample).gradients(data).matrix()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Probe(model, per_sample).gradients(data).matrix(), plain)
        assert not torch.equal(Probe(model, per_sample, autocast=True).gradients(data).matrix(), plain)


def test_batches_go_where_the_model_is_whatever_their_form():
    class Pair(NamedTuple):
        x: torch.Tensor
        y: int

    there = {torch.device("meta")}
    x = torch.zeros(2)
    assert moved(x, there).is_meta
    assert moved({"x": x, "id": "a"}, there)["x"].is_meta
    assert moved(Pair(x, 3), there).x.is_meta
    assert moved([x, (x,)], there)[1][0].is_meta
    assert moved(x, {torch.device("cpu")}) is x
    assert moved(x, {torch.device("cpu"), torch.device("meta")}) is x


def test_equal_losses_skip_a_batch_and_say_so_once():
    model, data = net(), batches(num=3)
    x = torch.ones(4, 3)
    probe = Probe(model, per_sample)
    with pytest.warns(HeldinWarning, match=r"1 of 4 batches skipped.*all its losses are equal.*once"):
        found = probe.gradients([*data, (x, torch.zeros(4, dtype=torch.long))])
    assert found.num_batches == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.gradients([*data, (x, torch.zeros(4, dtype=torch.long))])


def test_a_batch_unusable_for_one_rescaling_still_serves_another():
    model, data = net(), [*batches(num=3), *batches(num=1, size=1)]
    with pytest.warns(HeldinWarning, match="single sample"):
        found = Probe(model, per_sample).collect(data, ["std", "none"])
    assert (found["std"].num_batches, found["none"].num_batches) == (3, 4)


def test_single_samples_with_std_are_refused_and_pointed_to_the_pooled_form():
    with pytest.raises(BatchesError, match="pooled_std"):
        Probe(net(), per_sample).gradients(batches(size=1))


def flat(size=4):
    return torch.ones(size, 3), torch.zeros(size, dtype=torch.long)


@pytest.mark.parametrize("rescale", ["std", "std_detached", "minmax", "pooled_std"])
def test_batches_unusable_for_equal_losses_are_refused_as_such(rescale):
    with pytest.raises(NoSpreadError, match=r"Found 0; 3 skipped, .* losses are equal\. Is the loss a constant\?"):
        Probe(net(), per_sample).gradients([flat()] * 3, rescale)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ([flat(), flat(), flat(1)], None, NoSpreadError),
        ([flat(), flat(1), flat(1)], None, BatchesError),
        ([flat(1)] * 3, None, BatchesError),
        (batches(num=3), [flat(), flat(1)], NoSpreadError),
        (batches(num=3), [flat(1)], BatchesError),
    ],
    ids=["would be enough", "too small anyway", "all too small", "in the second set", "second set too small"],
)
def test_equal_losses_are_to_blame_only_where_batches_are_large_enough(first, second, kind):
    with pytest.raises(BatchesError) as refused:
        Probe(net(), per_sample).collect(first, ["std"], against=second, at_least=2)
    assert type(refused.value) is kind


def test_too_few_batches_are_refused_before_any_forward_pass():
    model = net()
    model.register_forward_hook(lambda *_: pytest.fail("ran the model"))
    with pytest.raises(BatchesError, match="At least 2"):
        Probe(model, per_sample).collect(batches(num=1), ["std"], at_least=2)
    with pytest.raises(BatchesError, match="compare"):
        Probe(model, per_sample).gradients(batches(), against=[])


@pytest.mark.parametrize("found", [torch.zeros(3), {"x": 1}, 5, "abc"], ids=["tensor", "dict", "int", "str"])
def test_what_is_no_iterable_of_batches_is_refused(found):
    with pytest.raises(BatchesError, match="iterable of batches"):
        Probe(net(), per_sample).gradients(found)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ArgumentError, match="trainable parameters.*ReLU"):
        Probe(nn.ReLU(), per_sample)
    frozen = net().requires_grad_(False)
    with pytest.raises(ArgumentError, match="requires_grad"):
        Probe(frozen, per_sample)


def test_what_is_no_module_is_refused():
    with pytest.raises(ArgumentError, match=r"torch\.nn\.Module"):
        Probe(lambda x: x, per_sample)


def test_a_loss_of_another_model_is_refused():
    other = net()
    with pytest.raises(LossError, match="no trainable parameter takes part"):
        Probe(net(), None, sample_losses=lambda model, batch: per_sample(other(batch[0]), batch[1])).gradients(
            batches()
        )


def test_losses_that_are_not_finite_are_refused():
    data = [(torch.full((4, 3), float("nan")), torch.zeros(4, dtype=torch.long))] * 2
    with pytest.raises(NotFiniteError, match="NaN"):
        Probe(net(), per_sample).gradients(data)


@pytest.mark.parametrize(("name", "value"), [("mode", "training"), ("rescale", "st")])
def test_unknown_names_are_refused(name, value):
    with pytest.raises(ArgumentError, match=f"`{name}` should be one of"):
        if name == "mode":
            Probe(net(), per_sample, mode=value)
        else:
            Probe(net(), per_sample).gradients(batches(), value)


def test_the_second_set_is_taken_with_the_rescalings_it_is_compared_in_alone():
    model, passes = nn.Linear(3, 2), queue.SimpleQueue()  # a list would be put back

    def losses(model, batch):
        passes.put(len(batch[0]))
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    batches = [(torch.randn(size, 3), torch.arange(size) % 2) for size in (4, 5, 6)]
    probe = Probe(model, None, sample_losses=losses)
    found = probe.collect(batches[:2], ["std", "none"], against=batches[2:], comparing=["std"])
    assert (found["std"].num_batches, found["none"].num_batches) == (3, 2)
    assert [passes.get() for _ in range(passes.qsize())] == [4, 5, 6]
    whole = probe.collect(batches[:2], ["std", "none"], against=batches[2:])
    assert torch.equal(whole["none"].matrix()[:2], found["none"].matrix())


def statistics(module):
    return [buffer.clone() for buffer in module.buffers()]


def normed():
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))


GLOBAL_ENCODER = normed()


def losses_over_a_global_encoder(model, batch):
    return per_sample(model(GLOBAL_ENCODER(batch[0])), batch[1])


def over(encoder):
    return lambda model, batch: per_sample(model(encoder(batch[0])), batch[1])


@pytest.mark.parametrize(
    ("encoder", "sample_losses"),
    [
        pytest.param(closed := normed(), over(closed), id="closure"),
        pytest.param(GLOBAL_ENCODER, losses_over_a_global_encoder, id="global name"),
    ],
)
def test_modules_that_losses_use_are_left_as_they_were(encoder, sample_losses):
    before = statistics(encoder)
    Probe(net(), None, sample_losses=sample_losses).gradients(batches())
    assert all(torch.equal(now, then) for now, then in zip(statistics(encoder), before, strict=True))


def test_a_module_that_the_model_hides_in_a_list_is_left_as_it_was():
    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.teacher = net(), [normed()]

        def forward(self, x):
            return self.body(self.teacher[0](x))

    model = Student()
    before = statistics(model.teacher[0])
    Probe(model, per_sample).gradients(batches())
    assert all(torch.equal(now, then) for now, then in zip(statistics(model.teacher[0]), before, strict=True))


def test_weights_that_are_not_there_yet_are_refused_before_they_are_made():
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Linear(5, 2))
    probe = Probe(model, per_sample)
    with pytest.raises(ArgumentError, match=r"Found that `0.weight` of Sequential.* Run one batch through it first"):
        probe.gradients(batches())
    assert isinstance(model[0], nn.LazyLinear)
    model(torch.randn(4, 3))
    probe.gradients(batches())


def test_weights_that_a_forward_pass_writes_to_are_spoken_of_once():
    class Normalising(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2, bias=False)

        def forward(self, x):
            with torch.no_grad():
                self.head.weight.copy_(F.normalize(self.head.weight, dim=1))
            return self.head(x)

    probe = Probe(Normalising(), per_sample)
    with pytest.warns(HeldinWarning, match=r"Normalising writes to its own weights \(head.weight\).*register_buffer"):
        probe.gradients(batches())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.gradients(batches())
