"""measure: names, sharing, refusals."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import GradientDisparity, TrainValDisparity
from heldin.errors import ArgumentError, BatchesError, HeldinWarning, NotFiniteError, UnservedError
from heldin.signals import reference


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def batches(num=4, size=6):
    return [(torch.randn(size, 3), torch.randint(2, (size,))) for _ in range(num)]


LOSS = nn.CrossEntropyLoss()


def test_one_float_a_signal_under_its_name():
    found = heldin.measure(net(), LOSS, batches(), signals=["gradient_disparity"])
    assert list(found) == ["gradient_disparity"]
    assert type(found["gradient_disparity"]) is float


def test_options_of_a_single_variant_leave_the_name_plain():
    found = heldin.measure(net(), LOSS, batches(), signals=[GradientDisparity(rescale="none", normalize=True)])
    assert list(found) == ["gradient_disparity"]


def test_variants_of_one_signal_carry_their_options():
    signals = [GradientDisparity(), GradientDisparity(rescale="none", normalize=True)]
    found = heldin.measure(net(), LOSS, batches(), signals=signals)
    assert list(found) == ["gradient_disparity", "gradient_disparity[rescale=none,normalize=True]"]


def test_any_iterable_of_batches_will_do():
    data = batches()
    model = net()
    expected = heldin.measure(model, LOSS, data)
    assert heldin.measure(model, LOSS, iter(data)) == expected
    assert heldin.measure(model, LOSS, (batch for batch in data)) == expected
    assert heldin.measure(model, LOSS, tuple(data)) == expected


def test_a_loader_is_measured_in_full_without_moving_any_random_stream():
    x, y = torch.randn(40, 3), torch.randint(2, (40,))
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    before = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())
    heldin.measure(net_seeded(), LOSS, loader)
    after = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def net_seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return net()


def test_different_slices_of_a_shuffled_loader_give_different_batches_as_training_goes_on():
    loader = DataLoader(TensorDataset(torch.randn(80, 3), torch.randint(2, (80,))), batch_size=8, shuffle=True)
    model = net()
    first = heldin.measure(model, LOSS, itertools.islice(loader, 5))
    torch.rand(1)  # training draws
    assert heldin.measure(model, LOSS, itertools.islice(loader, 5)) != first


def test_all_signals_see_the_same_batches():
    data, model = batches(6), net()
    both = heldin.measure(
        model, LOSS, data[:4], against=data[4:], signals=["gradient_disparity", "train_val_disparity"]
    )
    assert both["gradient_disparity"] == heldin.measure(model, LOSS, data[:4])["gradient_disparity"]
    alone = heldin.measure(model, LOSS, data[:4], against=data[4:], signals="train_val_disparity")
    assert both["train_val_disparity"] == alone["train_val_disparity"]


def test_dict_batches_through_sample_losses():
    data = [{"pixels": x, "label": y} for x, y in batches()]
    model = net()

    def losses(model, batch):
        return nn.functional.cross_entropy(model(batch["pixels"]), batch["label"], reduction="none")

    found = heldin.measure(model, None, data, sample_losses=losses)
    pairs = [(batch["pixels"], batch["label"]) for batch in data]
    assert found == pytest.approx(heldin.measure(model, LOSS, pairs), rel=1e-5)


@pytest.mark.parametrize("signal", ["gwa", "class_alignment", "stiffness", "susceptibility"])
@pytest.mark.parametrize("given", ["sample_losses", "loss_fn"])
def test_a_signal_that_looks_at_the_targets_says_that_it_needs_pairs(signal, given):
    model, data = net(), [{"pixels": x, "label": y} for x, y in batches()]
    options = {"signals": signal, "optimizer": torch.optim.SGD(model.parameters())}
    if given == "sample_losses":
        options["sample_losses"] = lambda model, batch: model(batch["pixels"]).sum(1)
    loss = LOSS if given == "loss_fn" else None
    with pytest.raises(
        UnservedError,
        match=f"The signal '{signal}' .* looks at the targets needs batches that are pairs .inputs, targets.. "
        "Found a dict with the keys 'pixels', 'label'. Give pairs",
    ):
        heldin.measure(model, loss, data, **options)


def test_half_precision_models_are_measured():
    model = net().to(torch.bfloat16)
    data = [(x.to(torch.bfloat16), y) for x, y in batches()]
    assert heldin.measure(model, LOSS, data)["gradient_disparity"] > 0


INFINITE = [(torch.full((4, 3), torch.inf), torch.ones(4).long())] * 3


@pytest.mark.parametrize(
    ("batches", "signals", "error", "says"),
    [
        (batches(), "gradient_disparty", ArgumentError, "Did you mean 'gradient_disparity'"),
        (batches(), [], ArgumentError, "At least one signal"),
        (batches(), ["gradient_disparity"] * 2, ArgumentError, "twice"),
        (batches(), TrainValDisparity(), ArgumentError, "against"),
        ([], "gradient_disparity", BatchesError, "Found 0"),
        (batches(1), "gradient_disparity", BatchesError, "At least 2 batches.*Found 1"),
        (INFINITE, "gradient_disparity", NotFiniteError, "finite"),
    ],
    ids=["unknown", "no signal", "twice", "nothing to compare with", "empty", "one batch", "infinite"],
)
def test_bad_input_is_refused(batches, signals, error, says):
    with pytest.raises(error, match=says):
        heldin.measure(net(), LOSS, batches, signals=signals)


def test_no_loss_at_all_is_refused():
    with pytest.raises(ArgumentError, match="neither"):
        heldin.measure(net(), None, batches())


class InPlace(nn.Module):
    """Normalises its input in place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        x -= 0.5
        x /= 2.0
        return self.layer(x)


@pytest.mark.filterwarnings("ignore:GWA is the mean alignment")
def test_a_model_that_works_on_its_input_in_place_changes_no_batch_and_no_other_signal():
    model, data = InPlace(), batches()
    before = [x.clone() for x, _ in data]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wanted = ["gradient_disparity", "evidence_based", "optimization_variance", "gwa"]
    together = heldin.measure(model, LOSS, data, signals=wanted, optimizer=optimizer)
    assert all(torch.equal(x, kept) for (x, _), kept in zip(data, before, strict=True))
    alone = {name: heldin.measure(model, LOSS, data, signals=name, optimizer=optimizer)[name] for name in wanted}
    assert together == alone


def test_ignored_samples_are_as_good_as_not_there():
    model = net()
    data = batches(size=12)
    for _, y in data:
        y[::3] = -100
    clean = [(x[y >= 0], y[y >= 0]) for x, y in data]
    wanted = ["gradient_disparity", "gradient_variance", "noise_scale", "evidence_based", "gsnr"]
    found, expected = (heldin.measure(model, LOSS, some, signals=wanted) for some in (data, clean))
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_batch_in_which_all_samples_are_ignored_is_skipped_with_a_warning():
    model, data = net(), batches()
    empty = (data[0][0], torch.full((6,), -100))
    with pytest.warns(HeldinWarning, match="1 of 5 batches skipped.*ignored"):
        found = heldin.measure(model, LOSS, [empty, *data], signals=GradientDisparity(rescale="none"))
    assert found == pytest.approx(heldin.measure(model, LOSS, data, signals=GradientDisparity(rescale="none")))


class Spectral(nn.Module):
    """Nothing but complex parameters."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, dtype=torch.cfloat))

    def forward(self, x):
        return (x.to(torch.cfloat) @ self.weight).imag


def test_complex_parameters_are_measured_by_their_real_and_imaginary_parts():
    model, data = Spectral(), batches()
    rows = []
    for x, y in data:
        (part,) = torch.autograd.grad(LOSS(model(x), y), [model.weight])
        rows.append(torch.view_as_real(part).reshape(-1))
    G = torch.stack(rows).double()
    wanted = [GradientDisparity(rescale="none"), "cosine", "inner_product"]
    found = heldin.measure(model, LOSS, data, signals=wanted)
    assert found["gradient_disparity"] == pytest.approx(float(torch.pdist(G).mean()), rel=1e-5)
    assert found["cosine"] == pytest.approx(reference.cosine(G), rel=1e-5)
    assert found["inner_product"] == pytest.approx(reference.inner_product(G), rel=1e-4)
    matrix = heldin.Probe(model, LOSS).gradients(data, "none").matrix()
    torch.testing.assert_close(matrix, G, rtol=1e-5, atol=1e-7)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(HeldinWarning, match="Left out.*: gwa: The model should end in a linear layer"):
        assert len(heldin.measure(model, LOSS, data, signals="all", optimizer=optimizer, against=data)) == 18


@pytest.mark.parametrize("create", [net, lambda: Unstacked()], ids=["in one pass", "one by one"])
def test_another_default_device_does_not_matter(create):
    model, data = create(), batches()
    wanted = ["gradient_disparity", "evidence_based", "class_alignment", "optimization_variance", "susceptibility"]
    options = {"signals": wanted, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
    expected = heldin.measure(model, LOSS, data, **options)
    with torch.device("meta"):
        assert heldin.measure(model, LOSS, data, **options) == expected


class Unstacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return x @ self.weight
