"""Needs: plain values that compute themselves, share passes, know their cost, and can be user-defined."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import EarlyStopping, needs
from heldin.errors import BatchesError, NoSpreadError, UnmeasurableError
from heldin.needs import (
    BatchGradients,
    ClassGradients,
    Cost,
    HeadAlignments,
    MeasurementContext,
    Need,
    Outputs,
    RandomLabelStep,
    SampleGradients,
    SteppedOutputs,
    compute_needs,
)
from heldin.probing import Probe
from heldin.signals import REGISTRY, Signal
from heldin.types import Direction


@pytest.fixture
def passes():
    """The number of samples of each forward pass."""
    return []


@pytest.fixture
def probe(passes):
    model = nn.Linear(4, 3)
    model.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    return Probe(model, nn.CrossEntropyLoss())


def batches(num=3, size=8):
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for _ in range(num)]


def compute(probe, wanted, tolerate=(UnmeasurableError,), data=None, **context):
    return compute_needs(wanted, MeasurementContext(probe, data or batches(), **context), tolerate=tolerate)


class TestValues:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (BatchGradients("none"), BatchGradients("std")),
            (BatchGradients(against=True), BatchGradients()),
            (BatchGradients(inner=True), BatchGradients()),
            (SampleGradients(), ClassGradients()),
            (Outputs(5), Outputs()),
            (SteppedOutputs(5), SteppedOutputs()),
            (HeadAlignments("fc"), HeadAlignments()),
        ],
        ids=repr,
    )
    def test_needs_with_the_same_options_are_equal_and_frozen(self, one, other):
        assert len({one, other}) == 2
        assert len({one, type(one)(**vars(one))}) == 1
        with pytest.raises(FrozenInstanceError):
            one.anything = 1

    def test_every_need_is_used_by_a_signal(self):
        defined = {kind for kind in vars(needs).values() if isinstance(kind, type) and issubclass(kind, Need)}
        assert {type(signal().needs) for signal in REGISTRY.values()} == defined - {Need}


class TestSharing:
    def test_gradients_of_all_rescalings_share_their_forward_passes(self, probe, passes):
        wanted = [BatchGradients("std"), BatchGradients("none", inner=True), BatchGradients("std_detached")]
        found, failed = compute(probe, wanted)
        assert list(found) == wanted
        assert not failed
        assert passes == [8, 8, 8]

    def test_distances_and_inner_products_share_a_gram_matrix(self, probe):
        found, _ = compute(probe, [BatchGradients("none"), BatchGradients("none", inner=True)])
        plain, inner = found.values()
        assert plain is inner

    def test_outputs_are_computed_once_for_the_largest_number(self, probe, passes):
        found, _ = compute(probe, [Outputs(5), Outputs(), Outputs(10)])
        assert {need.num_samples: len(value) for need, value in found.items()} == {None: 24, 10: 10, 5: 5}
        assert passes == [8, 8, 8]

    def test_outputs_of_the_training_pass_replace_a_pass(self, probe, passes):
        given = torch.randn(30, 3)
        found, _ = compute(probe, [Outputs(20)], outputs=given)
        assert torch.equal(found[Outputs(20)], given[:20])
        assert passes == []

    def test_outputs_are_those_of_the_samples_of_the_context(self, probe):
        requested = []

        def samples(num):
            requested.append(num)
            return iter(batches(1, 6))

        found, _ = compute(probe, [Outputs(4)], samples=samples)
        assert requested == [4]
        assert len(found[Outputs(4)]) == 4


class TestFailures:
    def test_a_need_that_cannot_be_computed_does_not_affect_the_others(self, probe):
        compared, head = BatchGradients("std", against=True), HeadAlignments("fc")
        wanted = [compared, SteppedOutputs(), RandomLabelStep(), head, SampleGradients(), BatchGradients("std")]
        found, failed = compute(probe, wanted)
        assert set(found) == {SampleGradients(), BatchGradients("std")}
        assert set(failed) == {compared, SteppedOutputs(), RandomLabelStep(), head}
        for need, word in ((compared, "against"), (SteppedOutputs(), "optimizer"), (head, "fc")):
            assert word in str(failed[need])

    def test_check_raises_before_any_pass(self, probe, passes):
        with pytest.raises(UnmeasurableError, match="against"):
            BatchGradients(against=True).check(MeasurementContext(probe, batches()))
        assert passes == []

    @pytest.mark.parametrize("need", [BatchGradients(), SteppedOutputs()], ids=repr)
    def test_one_batch_cannot_be_compared(self, probe, need):
        optimizer = torch.optim.SGD(probe.model.parameters(), lr=0.1)
        with pytest.raises(BatchesError, match="At least 2"):
            compute(probe, [need], data=batches(1), optimizer=optimizer)

    def test_tolerated_errors_are_returned_for_each_need_alone(self, probe):
        wanted = [BatchGradients("std"), BatchGradients("none"), SampleGradients(), HeadAlignments()]
        found, failed = compute(probe, wanted, tolerate=(BatchesError,), data=batches(3, 1))  # batches of one sample
        assert set(found) == {BatchGradients("none"), HeadAlignments()}
        assert set(failed) == {BatchGradients("std"), SampleGradients()}

    def test_a_single_need_that_fails_is_not_computed_again(self, probe, passes):
        _, failed = compute(probe, [BatchGradients("std")], tolerate=(BatchesError,), data=batches(3, 1))
        assert set(failed) == {BatchGradients("std")}
        assert passes == [1, 1, 1]

    def test_losses_without_spread_fail_only_the_rescaled_gradients(self, probe):
        nn.init.zeros_(probe.model.weight)
        nn.init.zeros_(probe.model.bias)
        wanted = [BatchGradients("std"), BatchGradients("none"), BatchGradients("minmax")]
        found, failed = compute(probe, wanted, tolerate=(NoSpreadError,))
        assert set(found) == {BatchGradients("none")}
        assert all(isinstance(error, NoSpreadError) for error in failed.values())


class TestCost:
    @pytest.mark.parametrize(
        ("need", "expected"),
        [
            (BatchGradients(), Cost(batch_gradients=5, distances=10)),
            (BatchGradients(against=True), Cost(batch_gradients=10, distances=25)),
            (SampleGradients(), Cost(batch_gradients=5)),
            (ClassGradients(), Cost(batch_gradients=15)),
            (Outputs(), Cost()),
            (SteppedOutputs(640), Cost(batch_gradients=5, optimizer_steps=5, batch_evaluations=25)),
            (RandomLabelStep(), Cost(batch_gradients=1, optimizer_steps=1, batch_evaluations=2)),
            (HeadAlignments(), Cost(batch_evaluations=5)),
        ],
        ids=repr,
    )
    def test_cost_of_a_measurement_on_5_batches_of_128(self, need, expected):
        assert need.cost(5, 128) == expected

    def test_costs_can_be_added_scaled_and_printed(self):
        total = Cost(1, 2, 3, 4) + Cost(batch_gradients=4).times(0.5)
        assert total == Cost(3, 2, 3, 4)
        assert str(total) == "3 backward, 3 steps, 4 forward"
        assert str(Cost()) == "none"


@dataclass(frozen=True)
class WeightNorm(Need[float]):
    """The norm of one parameter, and how often it was computed."""

    calls: ClassVar[list[str]] = []

    parameter: str = "weight"

    def cost(self, num_batches, batch_size):
        return Cost()

    def check(self, context):
        if self.parameter not in dict(context.probe.model.named_parameters()):
            raise UnmeasurableError(f"There is no parameter {self.parameter!r}.")

    def compute(self, context):
        self.calls.append(self.parameter)
        return float(context.probe.model.get_parameter(self.parameter).detach().norm())


@dataclass(frozen=True)
class LogNorm(Signal[float]):
    name: ClassVar[str] = "log_norm"
    direction: ClassVar[Direction] = Direction.RISES

    parameter: str = "weight"

    @property
    def needs(self):
        return WeightNorm(self.parameter)

    def read(self, norm):
        return math.log(norm)


class TestUserDefinedNeed:
    @pytest.fixture(autouse=True)
    def _clear(self):
        WeightNorm.calls.clear()

    def test_it_is_computed_once_for_all_signals_that_use_it(self):
        model = nn.Linear(4, 3)
        squared = heldin.signal("squared_norm", needs=WeightNorm())(lambda norm: norm**2)
        signals = [LogNorm(), squared, "gradient_disparity"]
        found = heldin.measure(model, nn.CrossEntropyLoss(), batches(), signals=signals)
        norm = float(model.weight.detach().norm())
        assert found["log_norm"] == pytest.approx(math.log(norm))
        assert found["squared_norm"] == pytest.approx(norm**2)
        assert found["gradient_disparity"] > 0
        assert WeightNorm.calls == ["weight"]

    def test_it_stops_training_and_resumes(self):
        model, data = nn.Linear(4, 3), DataLoader(TensorDataset(torch.randn(40, 4), torch.arange(40) % 3), 8)
        stoppers = [EarlyStopping(model, nn.CrossEntropyLoss(), signal=LogNorm(), patience=2) for _ in range(2)]
        for scale in (1.0, 2.0):
            nn.init.constant_(model.weight, scale)
            stoppers[0].step(data)
        stoppers[1].load_state_dict(stoppers[0].state_dict())
        nn.init.constant_(model.weight, 3.0)
        assert stoppers[1].step(data).epoch == 2

    def test_its_check_is_reported_with_the_name_of_the_signal(self):
        with pytest.raises(UnmeasurableError, match="The signal 'log_norm' cannot be measured here. There is no"):
            heldin.measure(nn.Linear(4, 3), nn.CrossEntropyLoss(), batches(), signals=LogNorm("head.weight"))
        assert WeightNorm.calls == []
