"""measure() and SignalReader: keys, batches, errors, outputs of training, and one reading path for all callers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import EarlyStopping, GradientDisparity, TrainValDisparity
from heldin.errors import (
    ArgumentError,
    BatchesError,
    HeldinWarning,
    NoSpreadError,
    NotFiniteError,
    UnmeasurableError,
)
from heldin.measuring import SignalReader
from heldin.probing.batches import split_batch, split_indices
from heldin.probing.isolation import derive_seed
from heldin.signals import reference

LOSS = nn.CrossEntropyLoss()
PLAIN = GradientDisparity(rescale="none")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def zero_net():
    """All losses are equal."""
    model = net()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def batches(num=4, size=6):
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for _ in range(num)]


def loader(num=64, batch_size=8):
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(num, 4, generator=generator), torch.randint(3, (num,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def reader(model, **options):
    return SignalReader(model, LOSS, **{"signals": "gradient_disparity", **options})


def disparity(reading):
    return reading.values["gradient_disparity"]


class TestMeasure:
    def test_returns_one_float_per_signal_keyed_by_its_name(self):
        found = heldin.measure(net(), LOSS, batches(), signals=["cosine", PLAIN])
        assert list(found) == ["cosine", "gradient_disparity"]
        assert all(type(value) is float for value in found.values())

    def test_variants_of_one_signal_have_their_options_in_the_key(self):
        found = heldin.measure(net(), LOSS, batches(), signals=[GradientDisparity(), PLAIN])
        assert list(found) == ["gradient_disparity", "gradient_disparity[rescale=none]"]

    def test_accepts_any_iterable_of_batches(self):
        data, model = batches(), net()
        expected = heldin.measure(model, LOSS, data)
        for iterable in (iter(data), (batch for batch in data), tuple(data)):
            assert heldin.measure(model, LOSS, iterable) == expected

    def test_slices_of_a_shuffled_loader_differ_as_training_goes_on(self):
        data, model = loader(80), net()
        first = heldin.measure(model, LOSS, itertools.islice(data, 5))
        torch.rand(1)  # training draws random numbers
        assert heldin.measure(model, LOSS, itertools.islice(data, 5)) != first

    def test_a_second_set_of_batches_does_not_change_other_signals(self):
        data, model = batches(6), net()
        signals = ["gradient_disparity", "train_val_disparity"]
        both = heldin.measure(model, LOSS, data[:4], against=data[4:], signals=signals)
        assert both["gradient_disparity"] == heldin.measure(model, LOSS, data[:4])["gradient_disparity"]
        alone = heldin.measure(model, LOSS, data[:4], against=data[4:], signals="train_val_disparity")
        assert both["train_val_disparity"] == alone["train_val_disparity"]

    def test_sample_losses_handle_batches_that_are_not_pairs(self):
        pairs, model = batches(), net()
        data = [{"pixels": x, "label": y} for x, y in pairs]

        def losses(model, batch):
            return F.cross_entropy(model(batch["pixels"]), batch["label"], reduction="none")

        found = heldin.measure(model, None, data, sample_losses=losses)
        assert found == pytest.approx(heldin.measure(model, LOSS, pairs), rel=1e-5)

    @pytest.mark.parametrize("signal", ["gwa", "class_alignment", "stiffness", "susceptibility"])
    @pytest.mark.parametrize("with_sample_losses", [True, False])
    def test_signals_that_use_targets_require_pairs(self, signal, with_sample_losses):
        model, data = net(), [{"pixels": x, "label": y} for x, y in batches()]
        options = {"signals": signal, "optimizer": torch.optim.SGD(model.parameters())}
        if with_sample_losses:
            options["sample_losses"] = lambda model, batch: model(batch["pixels"]).sum(1)
        expected = rf"The signal '{signal}' .*\(inputs, targets\).* Found a dict with the keys 'pixels', 'label'"
        with pytest.raises(UnmeasurableError, match=expected):
            heldin.measure(model, None if with_sample_losses else LOSS, data, **options)

    @pytest.mark.parametrize(
        ("data", "signals", "error", "message"),
        [
            (batches(), "gradient_disparty", ArgumentError, "Did you mean 'gradient_disparity'"),
            (batches(), [], ArgumentError, "At least one signal"),
            (batches(), TrainValDisparity(), UnmeasurableError, "against"),
            (batches(), "optimization_variance", UnmeasurableError, "Pass optimizer="),
            ([], "gradient_disparity", BatchesError, "Found 0"),
            (batches(1), "gradient_disparity", BatchesError, "At least 2 batches.*Found 1"),
            ([(torch.full((4, 4), torch.inf), torch.ones(4).long())] * 3, "cosine", NotFiniteError, "finite"),
        ],
        ids=["unknown", "no signal", "no second set", "no optimizer", "empty", "one batch", "infinite"],
    )
    def test_invalid_input_raises(self, data, signals, error, message):
        with pytest.raises(error, match=message):
            heldin.measure(net(), LOSS, data, signals=signals)

    def test_all_signals_are_measured_without_those_that_cannot_be(self):
        def batch_loss(model, batch):
            return F.cross_entropy(model(batch["x"]), batch["y"])

        data = [{"x": x, "y": y, "edges": torch.zeros(5, 2)} for x, y in batches()]  # the number of samples is hidden
        with pytest.warns(HeldinWarning, match=r"Left out.*noise_scale: The noise scale is a number of samples"):
            found = heldin.measure(net(), None, data, batch_loss=batch_loss, signals="all")
        assert "cosine" in found
        assert "noise_scale" not in found
        with pytest.raises(UnmeasurableError, match="The signal 'noise_scale' cannot be measured here"):
            heldin.measure(net(), None, data, batch_loss=batch_loss, signals=["noise_scale"])

    def test_an_unknown_argument_is_refused_with_the_closest_one(self):
        for error in (ArgumentError, TypeError):
            with pytest.raises(error, match=r"measure\(\) got an unexpected argument 'signal'. .*'signals'"):
                heldin.measure(net(), LOSS, batches(), signal="cosine")

    def test_a_loss_is_required(self):
        with pytest.raises(ArgumentError, match="Found none"):
            heldin.measure(net(), None, batches())

    def test_half_precision_models_are_measured(self):
        data = [(x.to(torch.bfloat16), y) for x, y in batches()]
        assert heldin.measure(net().to(torch.bfloat16), LOSS, data)["gradient_disparity"] > 0

    @pytest.mark.filterwarnings("ignore:GWA is the mean alignment")
    def test_a_model_that_changes_its_input_in_place_does_not_change_batches_or_other_signals(self):
        class InPlace(nn.Linear):
            def forward(self, x):
                x -= 0.5
                return super().forward(x)

        model, data = InPlace(4, 3), batches()
        before = [x.clone() for x, _ in data]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        signals = ["gradient_disparity", "evidence_based", "optimization_variance", "gwa"]
        together = heldin.measure(model, LOSS, data, signals=signals, optimizer=optimizer)
        assert all(torch.equal(x, kept) for (x, _), kept in zip(data, before, strict=True))
        alone = {name: heldin.measure(model, LOSS, data, signals=name, optimizer=optimizer)[name] for name in signals}
        assert together == alone

    def test_ignored_samples_have_no_effect(self):
        model, data = net(), batches(size=12)
        for _, y in data:
            y[::3] = -100
        clean = [(x[y >= 0], y[y >= 0]) for x, y in data]
        signals = ["gradient_disparity", "gradient_variance", "noise_scale", "evidence_based", "gsnr"]
        found, expected = (heldin.measure(model, LOSS, some, signals=signals) for some in (data, clean))
        assert found == pytest.approx(expected, rel=1e-5)

    def test_a_batch_of_ignored_samples_is_skipped_with_a_warning(self):
        model, data = net(), batches()
        ignored = (data[0][0], torch.full((6,), -100))
        with pytest.warns(HeldinWarning, match="1 of 5 batches skipped.*ignored"):
            found = heldin.measure(model, LOSS, [ignored, *data], signals=PLAIN)
        assert found == pytest.approx(heldin.measure(model, LOSS, data, signals=PLAIN))

    def test_complex_parameters_count_by_real_and_imaginary_part(self):
        class Spectral(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))

            def forward(self, x):
                return (x.to(torch.cfloat) @ self.weight).imag

        model, data = Spectral(), batches()
        parts = [torch.autograd.grad(LOSS(model(x), y), [model.weight])[0] for x, y in data]
        G = torch.stack([torch.view_as_real(part).reshape(-1) for part in parts]).double()
        found = heldin.measure(model, LOSS, data, signals=[PLAIN, "cosine", "inner_product"])
        expected = [reference.gradient_disparity(G), reference.cosine(G), reference.inner_product(G)]
        assert list(found.values()) == pytest.approx(expected, rel=1e-4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.warns(HeldinWarning, match="Left out.*: gwa: The model should end in a linear layer"):
            every = heldin.measure(model, LOSS, data, signals="all", optimizer=optimizer, against=data)
        assert len(every) == len(heldin.list_signals()) - 1

    def test_another_default_device_has_no_effect(self):
        model, data = net(), batches()
        signals = ["gradient_disparity", "evidence_based", "class_alignment", "optimization_variance", "susceptibility"]
        options = {"signals": signals, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
        expected = heldin.measure(model, LOSS, data, **options)
        with torch.device("meta"):
            assert heldin.measure(model, LOSS, data, **options) == expected


class TestOneReadingPath:
    """measure(), EarlyStopping and a reader used as the lab uses it give the same numbers.

    EarlyStopping draws the batches in another order, so sums differ by rounding in double precision.
    """

    SIGNALS = ("gradient_disparity", PLAIN, "cosine", "evidence_based", heldin.PredictionVariance(window=2))

    @staticmethod
    def double_batches():
        return [(x.double(), y) for x, y in batches(5)]

    def read_all(self, model, weights, data, signals):
        """The values of each caller, at each of the given weights."""
        stopper = EarlyStopping(model, LOSS, signal=signals, probes="fixed", batches=len(data), rule=heldin.Level(1e9))
        labelled = stopper.signals
        lab, memory = SignalReader(model, LOSS, signals=labelled, together=False), {}
        found = {"measure": [], "step": [], "lab": []}
        for epoch, state in enumerate(weights):
            model.load_state_dict(state)
            stopper.step(data)
            found["step"].append(dict(stopper.history[-1].values))
            found["lab"].append(dict(lab.read_batches(data, epoch=epoch, first=epoch == 0).values))
            try:
                found["measure"].append(heldin.measure(model, LOSS, data, signals=labelled, state=memory))
            except NoSpreadError:
                found["measure"].append(None)
        return found

    @staticmethod
    def no_none(readings):
        return [{label: math.nan if value is None else value for label, value in one.items()} for one in readings]

    def test_all_callers_give_the_same_numbers(self):
        model, data = net().double(), self.double_batches()
        weights = [{k: v * scale for k, v in net().state_dict().items()} for scale in (1.0, 1.5, 0.5)]
        found = self.read_all(model, weights, data, self.SIGNALS)
        steps = self.no_none(found["step"])
        assert len({one["gradient_disparity"] for one in steps}) == 3
        for caller in ("measure", "lab"):
            for one, other in zip(self.no_none(found[caller]), steps, strict=True):
                assert one == pytest.approx(other, rel=1e-10, nan_ok=True)

    def test_only_the_signal_that_needs_spread_is_nan(self):
        model, data = net().double(), self.double_batches()
        with pytest.warns(HeldinWarning, match="Recorded as NaN at epoch 1: .* all losses are equal"):
            found = self.read_all(model, [net().state_dict(), zero_net().state_dict()], data, self.SIGNALS[:3])
        assert found["measure"][1] is None  # an error: to measure() every reading is the first
        for caller in ("step", "lab"):
            assert [label for label, value in found[caller][1].items() if math.isnan(value)] == ["gradient_disparity"]
        labels = ["gradient_disparity[rescale=none]", "cosine"]
        plain = heldin.measure(model, LOSS, data, signals=[PLAIN, "cosine"])
        for label, expected in zip(labels, plain.values(), strict=True):
            assert found["lab"][1][label] == expected
            assert found["step"][1][label] == pytest.approx(expected, rel=1e-10)


class TestSignalReader:
    def test_fresh_batches_change_every_epoch_and_fixed_ones_do_not(self):
        model, data = net(), loader()
        fresh, fixed = reader(model), reader(model, probes="fixed")
        assert len({disparity(fresh.read(data, epoch)) for epoch in range(3)}) == 3
        assert len({disparity(fixed.read(data, epoch)) for epoch in range(3)}) == 1

    def test_a_reading_depends_on_seed_and_epoch_alone(self):
        model = net()
        first = reader(model).read(loader(), 3)
        torch.rand(5)
        assert reader(model).read(loader(), 3) == first
        assert disparity(reader(model, seed=1).read(loader(), 3)) != disparity(first)

    def test_fewer_batches_than_requested_are_used_with_one_warning(self):
        few = reader(net())
        with pytest.warns(HeldinWarning, match="Measuring on 3 batches, since there are no more; 5 were") as caught:
            assert [few.read(loader(24), epoch).num_batches for epoch in range(2)] == [3, 3]
        assert len(caught) == 1
        with pytest.raises(BatchesError, match="Found 1 in the loader.*smaller batch size"):
            few.read(loader(8), 2)

    @pytest.mark.parametrize("remainder", [1, 2, 9])
    def test_a_full_batch_with_a_small_remainder_is_split_as_a_single_batch_is(self, remainder):
        with pytest.warns(HeldinWarning, match="or a single full one.* split at random into 5 parts"):
            found = reader(net()).read(loader(20 + remainder, batch_size=20), 0)
        assert found.num_batches == 5
        assert found.num_samples == 20

    def test_a_small_remainder_counts_if_the_full_batch_has_too_few_samples_to_be_split(self):
        with pytest.warns(HeldinWarning, match="Measuring on 2 batches"):
            assert reader(net()).read(loader(11, batch_size=8), 0).num_batches == 2

    def test_pooling_draws_more_batches_than_it_compares(self):
        passes = itertools.count()

        def losses(model, batch):
            next(passes)
            return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

        pooled = GradientDisparity(rescale="pooled_std")
        pooling = SignalReader(net(), None, signals=pooled, batches=20, pool=40, sample_losses=losses)
        assert pooling.read(loader(64, batch_size=1), 0).num_batches == 20
        assert next(passes) == 20 + 40

    @pytest.mark.parametrize(
        ("error", "message", "warning"),
        [
            (NotFiniteError, "finite", "finite"),
            (NoSpreadError, r"equal up to rounding\. Is the loss a constant\?", "all losses are equal.*fits its"),
        ],
    )
    def test_unusable_losses_raise_at_the_first_reading_and_are_nan_later(self, error, message, warning):
        model = zero_net()
        if error is NotFiniteError:
            nn.init.constant_(model[0].weight, math.nan)
        seen = reader(model)
        with pytest.raises(error, match=message):
            seen.read(loader(), 0)
        with pytest.warns(HeldinWarning, match=f"Recorded as NaN at epoch 1: .*{warning}") as caught:
            assert all(math.isnan(disparity(seen.read(loader(), epoch, first=False))) for epoch in (1, 2))
        assert len(caught) == 1

    def test_an_invalid_optimizer_raises_at_once(self):
        for optimizer, message in ((None, "Pass optimizer="), ("adam", "torch.optim.Optimizer")):
            with pytest.raises(ArgumentError, match=message):
                reader(net(), signals="optimization_variance", optimizer=optimizer)


class TestOutputsOfTraining:
    """observe() replaces the evaluation pass of signals that compare outputs."""

    DATA = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(3, (12,))), batch_size=2)

    def label_wave(self, observed, epochs=4):
        """Label Wave at constant weights, with changing outputs observed in the given epochs."""
        seen = reader(net(), signals="label_wave")
        values = []
        for epoch in range(epochs):
            if epoch in observed:
                seen.observe(torch.arange(12), F.one_hot(torch.arange(12) % 3, 3).float().roll(epoch, 0))
            values.append(seen.read(self.DATA, epoch).values["label_wave"])
        return values

    def test_observed_outputs_are_used_instead_of_an_evaluation_pass(self):
        assert self.label_wave({0, 1, 2, 3}) == [None, 12.0, 12.0, 12.0]
        assert self.label_wave(set()) == [None, 0.0, 0.0, 0.0]

    def test_outputs_are_used_for_one_reading_only(self):
        with pytest.warns(HeldinWarning, match="evaluation pass"):
            values = self.label_wave({0, 1})
        assert values[:2] == [None, 12.0]
        assert values[3] == 0.0  # two evaluation passes at the same weights

    def test_outputs_are_not_stored_if_no_signal_uses_them(self):
        seen = reader(net())
        seen.observe([0], torch.zeros(1, 3))
        assert seen.state_dict()["offered"] is None

    def test_outputs_are_still_there_after_a_reading_that_failed(self, monkeypatch):
        def out_of_memory(*_, **__):
            raise RuntimeError("out of memory")

        seen = reader(net(), signals=["label_wave", "gradient_disparity"])
        seen.observe(torch.arange(12), torch.eye(3)[torch.zeros(12).long()])
        seen.read(self.DATA, 0)
        seen.observe(torch.arange(12), torch.eye(3)[torch.ones(12).long()])
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="out of memory"):
            patched.setattr(seen, "read_batches", out_of_memory)
            seen.read(self.DATA, 1)
        assert seen.read(self.DATA, 1).values["label_wave"] == 12.0

    def test_a_state_dict_does_not_change_with_later_outputs(self):
        seen = reader(net(), signals="label_wave")
        seen.observe([0], torch.zeros(1, 3))
        state = seen.state_dict()
        seen.observe([0], torch.ones(1, 3))
        assert state["offered"].tolist() == [[0.0, 0.0, 0.0]]


class TestResumingWithOtherBatches:
    @pytest.mark.parametrize(
        ("saved", "loaded", "message"),
        [
            ({}, {"probes": "fixed"}, r"with batches=5, probes='fresh', .* with batches=5, probes='fixed', seed=0\."),
            ({}, {"batches": 4}, r"with batches=5, .* with batches=4, probes='fresh'\."),
            ({"probes": "fixed"}, {"probes": "fixed", "seed": 1}, r"seed=0, .* seed=1\."),
            ({}, {"mode": "eval"}, r"with batches=5, probes='fresh', .* probes='fresh', mode='eval'\."),
            (
                {"autocast": True},
                {"layers": "0"},
                r"probes='fresh', autocast=True, .* probes='fresh', layers=\['0'\]\.",
            ),
            ({}, {"memory": heldin.Sketch(64)}, r"probes='fresh', memory='Sketch\(.*64.*\)'\."),
        ],
        ids=["other probes", "other number", "other fixed batches", "other mode", "other layers", "other memory"],
    )
    def test_batches_drawn_another_way_give_a_warning(self, saved, loaded, message):
        model = net()
        first = reader(model, **saved)
        first.read(loader(), 0)
        with pytest.warns(HeldinWarning, match=message):
            reader(model, **loaded).load_state_dict(first.state_dict())

    def test_no_warning_if_nothing_was_read_or_only_the_seed_of_fresh_batches_differs(self):
        model = net()
        reader(model, batches=4).load_state_dict(reader(model).state_dict())
        first = reader(model)
        first.read(loader(), 0)
        reader(model, seed=1).load_state_dict(first.state_dict())


def contrastive(model, batch):
    """A loss of a whole batch: each sample should resemble its own second view most."""
    first, second = model(batch[0]), model(batch[1])
    return nn.functional.cross_entropy(first @ second.T, torch.arange(len(first)))


def views():
    return [(torch.randn(8, 4), torch.randn(8, 4)) for _ in range(4)]


@pytest.mark.parametrize("rescale", ["none", "grad_std", "mean"])
def test_disparity_is_measured_from_a_loss_of_whole_batches(rescale):
    model, batches = nn.Linear(4, 3), views()
    found = heldin.measure(
        model, None, batches, batch_loss=contrastive, signals=heldin.GradientDisparity(rescale=rescale)
    )
    rows = []
    for batch in batches:
        loss = contrastive(model, batch)
        row = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]).double()
        rows.append(row / {"none": 1.0, "grad_std": row.std(), "mean": loss.detach().double()}[rescale])
    distances = [(rows[i] - rows[j]).norm() for i in range(4) for j in range(i)]
    assert found["gradient_disparity"] == pytest.approx(float(torch.stack(distances).mean()), rel=1e-5)


def test_signals_that_need_losses_of_single_samples_are_refused_by_name_with_a_batch_loss():
    with pytest.raises(UnmeasurableError, match="signal 'gradient_disparity' cannot be measured.*Found batch_loss"):
        heldin.measure(nn.Linear(4, 3), None, views(), batch_loss=contrastive)
    with pytest.warns(HeldinWarning, match="Left out.*gsnr"):
        found = heldin.measure(nn.Linear(4, 3), None, views(), batch_loss=contrastive, signals="all")
    assert {"gradient_variance", "cosine", "sign", "inner_product", "noise_scale"} - {*found} == {"gradient_variance"}


def test_a_model_that_returns_its_loss_needs_no_other():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, labels=None):
            logits = self.layer(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    model = Classifier()
    pairs = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(3)]
    expected = heldin.measure(model.layer, nn.CrossEntropyLoss(), pairs)
    assert heldin.measure(model, None, [{"x": x, "labels": y} for x, y in pairs]) == expected


class Graph:
    """30 nodes, of which `num` are used in training."""

    def __init__(self, num=21):
        generator = torch.Generator().manual_seed(2)
        self.x, self.y = torch.randn(30, 4, generator=generator), torch.randint(3, (30,), generator=generator)
        self.adjacency = (torch.rand(30, 30, generator=generator) < 0.2).float() + torch.eye(30)
        self.train_mask = torch.arange(30) < num


def graph_losses(model, graph):
    outputs = graph.adjacency @ model(graph.x)
    return F.cross_entropy(outputs[graph.train_mask], graph.y[graph.train_mask], reduction="none")


class TestSingleBatch:
    """One batch per epoch: its samples, or its losses, are split."""

    def test_parts_are_batches_of_different_samples(self):
        model, seen = net(), []

        def losses(model, batch):
            seen.append(batch[0])
            return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

        data = loader(42, batch_size=64)
        whole = SignalReader(model, None, signals="gradient_disparity", sample_losses=losses)
        message = "single full one. For measuring, its samples are split at random into 5 parts, new ones each time"
        with pytest.warns(HeldinWarning, match=message) as caught:
            first, second = whole.read(data, 0), whole.read(data, 1)
        assert len(caught) == 1
        assert first.num_batches == 5
        assert [len(x) for x in seen] == [9, 9, 8, 8, 8] * 2
        for parts in (seen[:5], seen[5:]):
            rows = {tuple(row) for x in parts for row in x.tolist()}
            assert rows == {tuple(row) for row in data.dataset.tensors[0].tolist()}
        assert disparity(first) != disparity(second)
        with pytest.warns(HeldinWarning, match="the same ones each time"):
            fixed = reader(model, probes="fixed")
            assert disparity(fixed.read(data, 0)) == disparity(fixed.read(data, 1)) == disparity(first)

    @pytest.mark.filterwarnings("ignore:The loader gives a single batch")
    def test_readings_are_those_of_the_same_parts_given_as_batches(self):
        model, data = net(), [(torch.randn(40, 4), torch.randint(3, (40,)))]
        signals = [
            "gradient_disparity",
            "gsnr",
            "cosine",
            "class_alignment",
            "gwa",
            GradientDisparity(rescale="pooled_std"),
        ]
        found = SignalReader(model, LOSS, signals=signals).read(data, 0)
        parts = split_batch(data[0], 5, seed=derive_seed(0, "parts", 0))
        assert found.values == heldin.measure(model, LOSS, parts, signals=signals, seed=derive_seed(0, "probe", 0))

    @pytest.mark.parametrize("probes", ["fresh", "fixed"])
    def test_losses_of_a_graph_are_split_after_one_forward_pass(self, probes):
        graph, model, passes = Graph(), nn.Linear(4, 3), []

        def losses(model, batch):
            passes.append(1)
            return graph_losses(model, batch)

        signals = ["gradient_disparity", "cosine", GradientDisparity(rescale="pooled_std")]
        whole = SignalReader(model, None, signals=signals, sample_losses=losses, probes=probes)
        with pytest.warns(HeldinWarning, match="its losses are split at random into 5 parts"):
            found = [whole.read([graph], epoch) for epoch in range(2)]
        assert len(passes) == 2
        assert found[0].num_batches == 5
        assert (found[0].values == found[1].values) == (probes == "fixed")

        rows, losses = [], graph_losses(model, graph)
        for part in split_indices(21, 5, seed=derive_seed(0, "probe", 0)):
            scaled = losses[part].mean() / losses[part].std()
            row = torch.autograd.grad(scaled, list(model.parameters()), retain_graph=True)
            rows.append(torch.cat([part.flatten() for part in row]))
        expected = torch.stack([(rows[i] - rows[j]).norm() for i in range(5) for j in range(i)]).mean()
        assert disparity(found[0]) == pytest.approx(float(expected), rel=1e-5)

    @pytest.mark.filterwarnings("ignore:The loader gives a single batch")
    @pytest.mark.parametrize("signal", ["gsnr", "class_alignment", "gwa", "optimization_variance"])
    def test_other_needs_are_refused_for_a_batch_that_cannot_be_divided(self, signal):
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        whole = SignalReader(model, None, signals=signal, sample_losses=graph_losses, optimizer=optimizer)
        with pytest.raises(UnmeasurableError, match=f"The signal '{signal}' cannot be measured.*cannot be divided"):
            whole.read([Graph()], 0)

    @pytest.mark.filterwarnings("ignore:The loader gives a single batch")
    def test_outputs_of_a_graph_are_compared_over_time(self):
        whole = SignalReader(nn.Linear(4, 3), None, signals="label_wave", sample_losses=graph_losses)
        assert [whole.read([Graph()], epoch).values["label_wave"] for epoch in range(2)] == [None, 0.0]

    def test_too_few_samples_are_refused(self):
        with pytest.raises(BatchesError, match="Found 1 in the loader.*smaller batch size.*, batch_size=2.*batches=4"):
            reader(net()).read(loader(9, batch_size=9), 0)
        with pytest.warns(HeldinWarning, match="single batch"):
            assert reader(net(), batches=4).read(loader(9, batch_size=9), 0).num_batches == 4
        with pytest.raises(BatchesError, match="at least 4 samples, for 2 batches. The only batch has 3."):
            reader(net()).read(loader(3, batch_size=9), 0)
        small = SignalReader(nn.Linear(4, 3), None, signals="gradient_disparity", sample_losses=graph_losses)
        with (
            pytest.warns(HeldinWarning, match="single batch"),
            pytest.raises(BatchesError, match="2 samples for each of its 5 parts. Found 9 in all.*batches=4"),
        ):
            small.read([Graph(9)], 0)

    def test_a_batch_loss_needs_a_batch_that_can_be_divided(self):
        signal = GradientDisparity(rescale="mean")
        whole = SignalReader(nn.Linear(4, 3), None, signals=signal, batch_loss=contrastive)
        with pytest.warns(HeldinWarning, match="single batch"):
            assert whole.read([(torch.randn(20, 4), torch.randn(20, 4))], 0).num_batches == 5
        whole = SignalReader(nn.Linear(4, 3), None, signals=signal, batch_loss=lambda m, b: graph_losses(m, b).mean())
        with pytest.raises(BatchesError, match="Found 1 in the loader"):
            whole.read([Graph()], 0)

    @pytest.mark.parametrize(
        ("batch", "divided"),
        [
            ((torch.zeros(20, 3), torch.zeros(20)), True),
            ({"x": torch.zeros(20, 3), "more": [torch.zeros(20)], "none": None}, True),
            ((torch.zeros(20, 3), torch.zeros(2, 30), torch.zeros(20)), False),
            ((torch.zeros(20, 3), torch.zeros(20, 20), torch.zeros(20)), False),
            ((["text"] * 20, torch.zeros(20)), False),
            (Graph(), False),
        ],
        ids=["pair", "dictionary", "edges", "adjacency", "texts", "object"],
    )
    def test_only_tensors_with_one_row_per_sample_are_divided(self, batch, divided):
        parts = split_batch(batch, 4, seed=0)
        assert (parts is not None) == divided
        assert parts is None or len(parts) == 4
