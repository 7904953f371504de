"""Needs, each served once."""

import pytest
import torch
from torch import nn

from heldin.errors import BatchesError
from heldin.needs import (
    BatchGradients,
    HeadAlignments,
    Outputs,
    RandomLabelStep,
    SampleGradients,
    SteppedOutputs,
)
from heldin.probing import Probe
from heldin.serving import Source, serve


@pytest.fixture
def passes():
    """How many samples went through the model, one entry a forward pass."""
    return []


@pytest.fixture
def probe(passes):
    model = nn.Linear(4, 3)
    model.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    return Probe(model, nn.CrossEntropyLoss())


def batches(num=3, size=8):
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for _ in range(num)]


def test_gradients_of_all_rescalings_share_their_forward_passes(probe, passes):
    needs = [BatchGradients("std"), BatchGradients("none", inner=True), BatchGradients("std_detached")]
    found, refused = serve(probe, needs, Source(batches()))
    assert list(found) == needs
    assert not refused
    assert passes == [8, 8, 8]


def test_one_gram_matrix_serves_distances_and_inner_products(probe):
    found, _ = serve(probe, [BatchGradients("none"), BatchGradients("none", inner=True)], Source(batches()))
    plain, inner = found.values()
    assert plain is inner


def test_outputs_are_computed_once_for_those_who_want_most_of_them(probe, passes):
    found, _ = serve(probe, [Outputs(5), Outputs(), Outputs(10)], Source(batches()))
    assert {need.num_samples: len(value) for need, value in found.items()} == {None: 24, 10: 10, 5: 5}
    assert passes == [8, 8, 8]


def test_outputs_that_were_offered_need_no_pass(probe, passes):
    offered = torch.randn(30, 3)
    found, _ = serve(probe, [Outputs(20)], Source(batches(), outputs=offered))
    assert torch.equal(found[Outputs(20)], offered[:20])
    assert passes == []


def test_outputs_come_from_the_samples_where_the_source_has_them(probe):
    asked = []

    def samples(num):
        asked.append(num)
        return iter(batches(1, 6))

    found, _ = serve(probe, [Outputs(4)], Source(batches(), samples=samples))
    assert asked == [4]
    assert len(found[Outputs(4)]) == 4


def test_what_cannot_be_served_is_told_and_the_rest_is_served(probe):
    needs = [BatchGradients("std", against=True), SteppedOutputs(), RandomLabelStep(), SampleGradients()]
    found, refused = serve(probe, needs, Source(batches()))
    assert list(found) == [SampleGradients()]
    assert "against" in str(refused[needs[0]])
    assert "optimizer" in str(refused[SteppedOutputs()])
    assert "optimizer" in str(refused[RandomLabelStep()])
    found, refused = serve(probe, [HeadAlignments("fc")], Source(batches()))
    assert not found
    assert "fc" in str(refused[HeadAlignments("fc")])


def test_a_single_batch_cannot_be_compared(probe):
    optimizer = torch.optim.SGD(probe.model.parameters(), lr=0.1)
    for need in (BatchGradients(), SteppedOutputs()):
        with pytest.raises(BatchesError, match="At least 2"):
            serve(probe, [need], Source(batches(1), optimizer=optimizer))


def test_who_is_tolerant_is_served_what_the_batches_suffice_for(probe):
    needs = [BatchGradients("std"), BatchGradients("none"), SampleGradients(), HeadAlignments()]
    found, refused = serve(probe, needs, Source(batches(3, 1)), tolerant=True)  # batches of one sample
    assert set(found) == {BatchGradients("none"), HeadAlignments()}
    assert set(refused) == {BatchGradients("std"), SampleGradients()}
