"""The moments of one class, from weighted backward passes: numbers worked by hand, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import UnservedError
from heldin.probing import Probe
from heldin.probing.classes import class_targets, of_class
from heldin.signals import reference

DOUBLE = torch.float64


def itself():
    """A model whose gradient for a sample is that sample."""
    return nn.Linear(2, 1, bias=False, dtype=DOUBLE)


def batch(*samples):
    """Samples ((x, y), label)."""
    inputs, labels = zip(*samples, strict=True)
    return torch.tensor(inputs, dtype=DOUBLE), torch.tensor(labels)


def moments(model, batches, label):
    probe, labels = Probe(model, lambda output, target: output.squeeze(1)), [y for _, y in batches]
    with probe.session(mode="eval"):
        return of_class(probe, batches, labels, [x.norm(dim=1) for x, _ in batches], label)


def test_lengths_sums_and_directions_as_worked_by_hand():
    """Of (3, 4) and (0, 2): lengths 5 and 2, sum (3, 6), directions (0.6, 0.8) and (0, 1)."""
    batches = [batch(((3.0, 4.0), 7), ((9.0, 9.0), 1)), batch(((0.0, 2.0), 7), ((8.0, 8.0), 1))]
    found = moments(itself(), batches, 7)
    assert (found.label, found.num_samples, found.num_units) == (7, 2, 2)
    assert (found.norm_sum, found.norm_sq_sum) == pytest.approx((7.0, 29.0))
    assert (found.sum_sq, found.unit_sum_sq) == pytest.approx((45.0, 3.6))


def test_a_gradient_of_length_zero_counts_as_a_sample_and_has_no_direction():
    found = moments(itself(), [batch(((3.0, 4.0), 0), ((0.0, 0.0), 0), ((-6.0, -8.0), 0))], 0)
    assert (found.num_samples, found.num_units) == (3, 2)
    assert (found.norm_sum, found.sum_sq) == pytest.approx((15.0, 25.0))
    assert found.unit_sum_sq == pytest.approx(0.0, abs=1e-24)


def test_a_class_without_gradients_needs_no_pass():
    model = itself()
    model.register_forward_hook(lambda *_: pytest.fail("ran the model"))
    found = moments(model, [batch(((0.0, 0.0), 0), ((0.0, 0.0), 0))], 0)
    assert (found.num_samples, found.num_units, found.sum_sq, found.unit_sum_sq) == (2, 0, 0.0, 0.0)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_directions_do_not_depend_on_how_long_gradients_are(scale):
    found = moments(itself(), [batch(((3.0 * scale, 4.0 * scale), 0), ((0.0, 2.0 * scale), 0))], 0)
    assert found.unit_sum_sq == pytest.approx(3.6)
    assert found.sum_sq == pytest.approx(45.0 * scale**2, rel=1e-12, abs=0)


def test_a_parameter_that_takes_part_in_some_pieces_only_is_counted_there():
    class Halves(nn.Module):
        """Samples of the one kind meet one weight, those of the other another."""

        def __init__(self):
            super().__init__()
            self.long, self.short = nn.Linear(3, 1, bias=False), nn.Linear(2, 1, bias=False)

        def forward(self, x):
            return (self.long if x.shape[1] == 3 else self.short)(x)

    ones, twos = (torch.ones(2, 3), torch.zeros(2).long()), (2.0 * torch.ones(3, 2), torch.zeros(3).long())
    found = moments(Halves(), [ones, twos, ones], 0)
    assert found.sum_sq == pytest.approx(3 * 4.0**2 + 2 * 6.0**2)  # (4, 4, 4) and (6, 6)


def test_a_class_goes_through_the_model_in_no_more_than_a_batch_at_a_time():
    model, sizes = itself(), []
    model.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    batches = [(torch.randn(6, 2, dtype=DOUBLE), torch.tensor([0, 0, 0, 0, 0, 1])) for _ in range(4)]
    assert [moments(model, batches, label).num_samples for label in (0, 1)] == [20, 4]
    assert sizes == [5, 5, 5, 5, 4]  # two batches of class 0 would not fit, all of class 1 do


def test_a_network_has_the_moments_of_plain_backward_passes():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(DOUBLE)
    batches = [(torch.randn(num, 4, dtype=DOUBLE), torch.arange(num) % 3) for num in (7, 4)]
    G = torch.cat([reference.sample_gradients(model, nn.CrossEntropyLoss(reduction="none"), one) for one in batches])
    norms, probe = list(G.norm(dim=1).split([7, 4])), Probe(model, nn.CrossEntropyLoss())
    with probe.session(mode="eval"):
        found = of_class(probe, batches, [y for _, y in batches], norms, 1)
    rows = G[torch.cat([y for _, y in batches]) == 1]
    assert found.sum_sq == pytest.approx(float(rows.sum(0).square().sum()), rel=1e-10)
    assert found.unit_sum_sq == pytest.approx(float(F.normalize(rows).sum(0).square().sum()), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_any_integers_are_classes(dtype):
    assert class_targets((torch.zeros(3, 2), torch.tensor([2, 0, 1], dtype=dtype))).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        (torch.zeros(4, 3), r"targets of shape \(4, 3\) and type torch.float32"),
        (torch.zeros(4, 1).long(), r"targets of shape \(4, 1\) and type torch.int64"),
        (torch.zeros(4), r"targets of shape \(4,\) and type torch.float32"),
        (torch.zeros(4, dtype=torch.bool), r"targets of shape \(4,\) and type torch.bool"),
        ([0, 1, 2, 0], "targets in a list"),
    ],
    ids=["vectors", "a column", "numbers", "yes and no", "no tensor"],
)
def test_targets_that_are_no_classes_are_refused_with_the_remedy(targets, found):
    with pytest.raises(UnservedError, match=f"an integer for each sample.*Found {found}.*give the classes as targets"):
        class_targets((torch.randn(4, 6), targets))


def test_a_batch_that_is_no_pair_is_refused():
    with pytest.raises(UnservedError, match="Found a dict with the keys 'x'"):
        class_targets({"x": torch.randn(4, 6)})
