"""The gradients of single samples, a few at a time: against a backward pass a sample, with and without a vmap."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from heldin.errors import HeldinWarning, LossError
from heldin.probing import Probe, persample
from heldin.probing.persample import chunk_size, chunked_gradients
from heldin.signals import reference

NUM = 11


class Convolution(nn.Module):
    """With a layer that is never called; `looks_at_values`, which no vmap lets it do."""

    def __init__(self, looks_at_values=False):
        super().__init__()
        self.layer, self.never = nn.Conv1d(1, 3, 6, dtype=torch.float64), nn.Linear(2, 2, dtype=torch.float64)
        self.looks_at_values = looks_at_values

    def forward(self, x):
        signs = [row.sum().item() for row in x] if self.looks_at_values else x.sum(1)
        return self.layer(x[:, None]).squeeze(2) * torch.as_tensor(signs).sign()[:, None]


def cross_entropy(output, target):
    return F.cross_entropy(output, target, reduction="none")


def batch():
    return torch.randn(NUM, 6, dtype=torch.float64), torch.arange(NUM) % 3


def chunks(probe, batch, parameters=None):
    with probe.session(mode="eval"):
        return list(chunked_gradients(probe, batch, NUM, parameters or probe.parameters()))


def matrix(found):
    """G (n, d)."""
    return torch.cat([torch.cat([part.flatten(1) for part in chunk], dim=1) for chunk in found])


def test_gradients_are_those_of_a_backward_pass_a_sample():
    model, samples = Convolution(), batch()
    (found,) = chunks(Probe(model, cross_entropy), samples)
    assert [part.shape for part in found] == [(NUM, *parameter.shape) for parameter in model.parameters()]
    torch.testing.assert_close(matrix([found]), reference.sample_gradients(model, cross_entropy, samples))


def test_the_parameters_asked_for_are_given_in_their_order():
    model, samples = Convolution(), batch()
    probe = Probe(model, cross_entropy)
    (whole,) = chunks(probe, samples)
    (bias, weight), *more = chunks(probe, samples, [model.layer.bias, model.layer.weight])
    assert more == []
    assert torch.equal(weight, whole[0])
    assert torch.equal(bias, whole[1])


@pytest.mark.parametrize("looks_at_values", [False, True], ids=["together", "one by one"])
@pytest.mark.filterwarnings("ignore:Gradients of single samples are taken one sample at a time")
def test_chunks_come_in_the_order_of_the_samples(looks_at_values, monkeypatch):
    monkeypatch.setattr(persample, "CHUNK_BYTES", 1)
    model, samples = Convolution(looks_at_values), batch()
    found = chunks(Probe(model, cross_entropy), samples)
    assert [len(chunk[0]) for chunk in found] == [4, 4, 3]
    torch.testing.assert_close(matrix(found), reference.sample_gradients(model, cross_entropy, samples))


def test_a_model_that_no_vmap_takes_is_named_once_with_the_reason():
    probe, samples = Probe(Convolution(looks_at_values=True), cross_entropy), batch()
    with pytest.warns(HeldinWarning, match=r"which is slow.*\(RuntimeError: .*\)\. The numbers are the same") as said:
        first, second = chunks(probe, samples), chunks(probe, samples)
    assert len(said) == 1
    assert torch.equal(matrix(first), matrix(second))


@pytest.mark.filterwarnings("ignore:Gradients of single samples are taken one sample at a time")
def test_a_sample_whose_loss_knows_nothing_of_the_model_has_a_gradient_of_zero():
    model, (x, y) = Convolution(), batch()

    def losses(model, batch):
        known = [bool(row[0] > 0) for row in batch[0]]
        return torch.stack(
            [model(row[None]).sum() if one else row.sum() for row, one in zip(batch[0], known, strict=True)]
        )

    found = matrix(chunks(Probe(model, None, sample_losses=losses), (x, y)))
    assert torch.equal((found != 0).any(1), x[:, 0] > 0)


def test_gradients_of_chunks_are_on_no_graph():
    """The weight is a constant there; were it not, every chunk would hold all that led to it."""
    model = Convolution()
    ((bias,),) = chunks(Probe(model, cross_entropy), batch(), [model.layer.bias])
    assert bias.shape == (NUM, 3)
    assert not bias.requires_grad


class Complex(nn.Module):
    """A complex weight, as two real ones in `Real`."""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(torch.view_as_complex(values.clone()))

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).abs()


class Real(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values.clone())

    def forward(self, x):
        return torch.hypot(x @ self.weight[..., 0], x @ self.weight[..., 1])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_complex_parameters_are_two_real_ones(one_by_one):
    values, samples = torch.randn(6, 3, 2, dtype=torch.float64), batch()
    probe = Probe(Complex(values), cross_entropy)
    if one_by_one:
        probe._warned.add(persample.ONE_BY_ONE)
    expected = reference.sample_gradients(Real(values), cross_entropy, samples)
    torch.testing.assert_close(matrix(chunks(probe, samples)), expected)


def test_more_losses_than_samples_are_refused_with_the_remedy():
    def losses(model, batch):
        return cross_entropy(model(batch[0]), batch[1]).repeat_interleave(2)

    with pytest.raises(LossError, match="one sample should have one loss. Found 2. Check that the first dimension"):
        chunks(Probe(Convolution(), None, sample_losses=losses), batch())


def parameters(megabytes):
    return [nn.Parameter(torch.empty(megabytes * 2**18, device="meta"))]


def test_chunks_fill_64_megabytes_or_hold_four_samples_and_are_of_like_size():
    sizes = [chunk_size(num, parameters(mb)) for num, mb in [(32, 1), (128, 1), (100, 1), (32, 3), (30, 100)]]
    assert sizes == [32, 64, 50, 16, 4]


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(0, 100))
def test_no_chunk_is_larger_than_there_is_room_for_and_none_is_more_than_needed(num, megabytes):
    size, room = chunk_size(num, parameters(megabytes)), max(4, 64 // max(1, megabytes))
    assert 1 <= size <= num
    if megabytes:
        assert size <= room
        assert -(-num // size) == -(-num // min(num, room))  # as few chunks as there can be
    else:
        assert size == num  # nothing to differentiate by takes no room
