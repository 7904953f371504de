"""probes="training": readings from gradients that training computes, against gradients collected by hand."""

from __future__ import annotations

import copy
import gc
import io
import math
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from tests.states import differences, identities_of, state_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping, GradientDisparity, GradientVariance, NoiseScale
from heldin.errors import ArgumentError, BatchesError, HeldinWarning, LossError, NotFiniteError, UnmeasurableError
from heldin.probing.training_gradients import ObservedLosses, TrainingPass
from heldin.signals import reference

DETACHED = GradientDisparity(rescale="std_detached")


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def batches(num=8, size=8, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(3, (size,), generator=generator)) for _ in range(num)
    ]


def per_sample(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def hand_collected(model, losses, rescale="std_detached"):
    """The gradient of the re-scaled mean of the losses (d,), by a separate pass through the same graph."""
    scaled = reference.scaled_loss(losses, rescale)
    parts = torch.autograd.grad(scaled, list(model.parameters()), retain_graph=True)
    row = torch.cat([part.reshape(-1) for part in parts]).double()
    return row / row.std() if rescale == "grad_std" else row


def disparity(rows):
    return reference.gradient_disparity(torch.stack(rows))


class Loop:
    """A training loop that observes its losses, and collects the gradients by hand if `by_hand`."""

    def __init__(self, model=None, *, rescale="std_detached", by_hand=True, stopper=None, **options):
        self.model = net() if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.rescale, self.by_hand = rescale, by_hand
        signal = GradientDisparity(rescale=rescale)
        self.stopper = stopper or EarlyStopping(self.model, signal=signal, probes="training", **options)
        self.rows = []

    def backward(self, batch, divide_by=1):
        losses = per_sample(self.model, batch)
        if self.by_hand:
            self.rows.append(hand_collected(self.model, losses, self.rescale))
        self.stopper.observe(losses)
        (losses.mean() / divide_by).backward()

    def epoch(self, data, accumulate=1, clip=None):
        for number, batch in enumerate(data):
            self.backward(batch, accumulate)
            if (number + 1) % accumulate == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), clip)
                self.optimizer.step()
                self.optimizer.zero_grad()

    @property
    def value(self):
        return self.stopper.history[-1].values["gradient_disparity"]


@pytest.mark.parametrize("rescale", ["std_detached", "none", "mean", "grad_std"])
def test_a_reading_compares_the_gradients_of_the_last_steps(rescale):
    loop = Loop(rescale=rescale)
    for _ in range(3):
        loop.epoch(batches())
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        assert loop.stopper.history[-1].num_batches == 5


@pytest.mark.parametrize("batches_compared", [3, 5])
@pytest.mark.parametrize("num_steps", [1, 3])
def test_micro_batches_of_one_step_are_compared_with_each_other_only(batches_compared, num_steps):
    loop = Loop(batches=batches_compared)
    for _ in range(2):
        loop.epoch(batches(4 * num_steps), accumulate=4, clip=0.01)
        loop.stopper.step()
        used = min(4, batches_compared)
        assert loop.value == pytest.approx(disparity(loop.rows[-used:]), rel=1e-5)
        assert loop.stopper.history[-1].num_batches == used


def test_the_micro_batches_of_the_last_complete_step_are_used_if_one_is_left_over():
    loop = Loop()
    loop.epoch(batches(9), accumulate=4)
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[4:8]), rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda p: torch.optim.Adam(p, fused=True), id="fused, which does not count its writes"),
        pytest.param(lambda p: torch.optim.AdamW(p, foreach=True), id="foreach"),
        pytest.param(lambda p: torch.optim.RMSprop(p, foreach=False), id="loop"),
    ],
)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_steps_are_told_apart_from_micro_batches_with_any_optimizer(make, set_to_none):
    loop = Loop()
    optimizer = make(loop.model.parameters())
    for number, batch in enumerate(batches(12)):
        loop.backward(batch)
        if number % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
    loop.stopper.step()
    assert loop.stopper.history[-1].num_batches == 2
    assert loop.value == pytest.approx(disparity(loop.rows[-2:]), rel=1e-5)


def test_clipping_after_the_backward_pass_has_no_effect():
    values = []
    for clip in (None, 1e-3):
        loop = Loop(by_hand=False)
        loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.0)
        loop.epoch(batches(), clip=clip)
        loop.stopper.step()
        values.append(loop.value)
    assert values[0] == values[1]


@pytest.mark.parametrize("every", [1, 3, 10])
def test_readings_between_steps_compare_the_last_steps(every):
    loop = Loop(every=every, unit="step")
    for number, batch in enumerate(batches(20)):
        loop.epoch([batch])
        loop.stopper.step()
        if number == 0 and every == 1:
            assert loop.value is None  # a single gradient so far
        elif (number + 1) % every == 0:
            assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def test_only_the_passes_before_a_reading_are_taken():
    loop = Loop(every=2, warmup=1)
    for epoch in range(4):
        taken = set()
        for number, batch in enumerate(batches(30)):
            before = loop.stopper.reader.capture.passes
            loop.epoch([batch])
            if loop.stopper.reader.capture.passes[-1:] != before[-1:]:
                taken.add(number)
        if epoch == 0:
            assert len(taken) == 30  # how many batches an epoch has is not known yet
        else:
            assert taken == (set(range(25, 30)) if epoch % 2 else set())  # 5
        loop.stopper.step()
        assert loop.stopper.reader.capture.passes == ()
    assert [reading.epoch for reading in loop.stopper.history] == [1, 3]


def test_check_tells_the_length_of_the_first_epoch():
    loop = Loop()
    loop.stopper.check(batches(30))
    loop.epoch(batches(20))
    assert loop.stopper.reader.capture.passes == ()
    loop.epoch(batches(10))
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def test_epochs_that_become_longer_or_a_little_shorter_give_full_readings():
    loop = Loop()
    for num in (40, 100, 98):
        loop.epoch(batches(num))
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def test_an_epoch_of_which_nothing_was_taken_has_no_value():
    loop = Loop()
    loop.epoch(batches(40))
    loop.stopper.step()
    loop.epoch(batches(10))
    with pytest.warns(HeldinWarning, match="Found 0 since the last reading"):
        loop.stopper.step()
    assert loop.value is None
    assert loop.stopper.decision.history_length == 1
    loop.epoch(batches(10))
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def test_a_small_last_batch_is_left_out():
    loop = Loop()
    for _ in range(2):
        loop.epoch([*batches(9), *batches(1, size=3)])
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-6:-1]), rel=1e-5)


def test_earlier_steps_replace_a_small_last_batch():
    loop = Loop()
    for _ in range(3):
        loop.epoch([*batches(3), *batches(1, size=3)])
        loop.stopper.step()
    large = [row for number, row in enumerate(loop.rows) if number % 4 != 3]
    assert loop.stopper.history[-1].num_batches == 5
    assert loop.value == pytest.approx(disparity(large[-5:]), rel=1e-5)


def test_a_gradient_scaler_has_no_effect_on_the_value():
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
    for batch in batches():
        losses = per_sample(loop.model, batch)
        loop.rows.append(hand_collected(loop.model, losses))
        loop.stopper.observe(losses)
        scaler.scale(losses.mean()).backward()
        scaler.step(loop.optimizer)
        scaler.update()
        loop.optimizer.zero_grad()
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def test_under_autocast_the_gradients_are_those_of_training():
    loop = Loop(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)))
    for batch in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = per_sample(loop.model, batch)
        loop.rows.append(hand_collected(loop.model, losses))
        loop.stopper.observe(losses)
        losses.mean().backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-2)  # bfloat16 rounds a scaled loss differently


def test_the_factor_of_the_loss_is_divided_out():
    values = []
    for factor in (1.0, 100.0, "sum"):
        loop = Loop(rescale="none")
        loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.0)
        for batch in batches():
            losses = per_sample(loop.model, batch)
            loop.stopper.observe(losses)
            (losses.sum() if factor == "sum" else factor * losses.mean()).backward()
            loop.optimizer.zero_grad()
        loop.stopper.step()
        values.append(loop.value)
    assert values[1] == pytest.approx(values[0], rel=1e-5)
    assert values[2] == pytest.approx(values[0], rel=1e-5)


def test_the_mean_loss_can_be_observed_beside_the_losses():
    loop = Loop()
    for batch in batches():
        outputs = loop.model(batch[0])
        loss = F.cross_entropy(outputs, batch[1])
        losses = F.cross_entropy(outputs, batch[1], reduction="none")
        loop.rows.append(hand_collected(loop.model, losses))
        loop.stopper.observe(losses.detach(), loss=loss)
        (loss / 7).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


@pytest.mark.parametrize("num", [8, 30, 75, 76])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_several_losses_of_one_pass_are_added_with_their_factors(num, every):
    """The second loss is that of every pass, or of some of them."""
    loop = Loop()
    for _ in range(3):
        for number, (x, y) in enumerate(batches(num)):
            outputs = loop.model(x)
            first, second = F.cross_entropy(outputs, y, reduction="none"), outputs.square().mean(1)
            factor = 0.3 if number % every == 0 else 0.0
            loop.rows.append(hand_collected(loop.model, first + factor * second))
            loop.stopper.observe(first)
            if factor:
                loop.stopper.observe(second)
            (first.mean() + factor * second.mean()).backward()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        assert loop.stopper.history[-1].num_batches == 5


def test_losses_of_tokens_are_averaged_per_sample():
    model = nn.Linear(4, 3)
    stopper = EarlyStopping(model, signal=DETACHED, probes="training")
    rows = []
    for _ in range(5):
        losses = F.cross_entropy(
            model(torch.randn(6, 10, 4)).transpose(1, 2), torch.randint(3, (6, 10)), reduction="none"
        )
        rows.append(hand_collected(model, losses.mean(1)))
        stopper.observe(losses)
        losses.mean().backward()
        model.zero_grad()
    stopper.step()
    assert stopper.history[-1].values["gradient_disparity"] == pytest.approx(disparity(rows), rel=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_models_can_be_read(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x):
            return checkpoint(self.second, self.first(x), use_reentrant=reentrant)

    model = Checkpointed()
    plain = copy.deepcopy(model)
    plain.forward = lambda x: plain.second(plain.first(x))
    stopper = EarlyStopping(model, signal=DETACHED, probes="training")
    rows = []
    for batch in batches():
        rows.append(hand_collected(plain, per_sample(plain, batch)))
        losses = per_sample(model, batch)
        stopper.observe(losses)
        losses.mean().backward()
        model.zero_grad()
    stopper.step()
    assert stopper.history[-1].values["gradient_disparity"] == pytest.approx(disparity(rows[-5:]), rel=1e-5)


def test_all_signals_of_batch_gradients_share_the_passes():
    loop = Loop(by_hand=False)
    signals = [DETACHED, GradientVariance(rescale="none"), "cosine", "sign", "inner_product", NoiseScale()]
    loop.stopper = EarlyStopping(loop.model, signal=signals, probes="training")
    loop.rescale, loop.by_hand = "none", True
    loop.epoch(batches())
    loop.stopper.step()
    values, matrix = loop.stopper.history[-1].values, torch.stack(loop.rows[-5:])
    assert values["gradient_variance"] == pytest.approx(float(matrix.var(0).sum()), rel=1e-5)
    assert values["inner_product"] == pytest.approx(reference.inner_product(matrix), rel=1e-5)
    assert values["noise_scale"] == pytest.approx(
        8 * float(matrix.var(0).sum()) / reference.inner_product(matrix), rel=1e-3
    ) or math.isinf(values["noise_scale"])


def test_a_loss_of_whole_batches_is_enough_for_signals_that_need_no_more():
    model = nn.Linear(4, 3)
    stopper = EarlyStopping(model, signal=GradientDisparity(rescale="mean"), probes="training")
    rows = []
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        parts = torch.autograd.grad(loss / loss.detach(), list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([part.reshape(-1) for part in parts]).double())
        stopper.observe(loss)
        (3.0 * loss).backward()
        model.zero_grad()
    stopper.step()
    assert stopper.history[-1].values["gradient_disparity"] == pytest.approx(disparity(rows[-5:]), rel=1e-5)


class TestTraining:
    """What training computes does not change."""

    def train(self, watched, accumulate=1):
        torch.manual_seed(3)
        model = net(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        stopper = EarlyStopping(model, signal=DETACHED, probes="training", every=1)
        data = DataLoader(TensorDataset(*map(torch.cat, zip(*batches(), strict=True))), batch_size=8, shuffle=True)
        for _ in range(3):
            for number, batch in enumerate(data):
                losses = per_sample(model, batch)
                if watched:
                    stopper.observe(losses)
                losses.mean().backward()
                if (number + 1) % accumulate == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
            if watched:
                stopper.step()
        assert len(stopper.history) == (3 if watched else 0)
        return state_of(model, optimizer=optimizer)

    @pytest.mark.parametrize("accumulate", [1, 4])
    def test_it_is_bit_identical(self, accumulate):
        assert differences(self.train(False, accumulate), self.train(True, accumulate)) == []

    def test_a_reading_changes_nothing_and_leaves_no_hook(self):
        loop = Loop(by_hand=False)
        loop.epoch(batches())
        before = state_of(loop.model, optimizer=loop.optimizer), identities_of(loop.model, optimizer=loop.optimizer)
        loop.stopper.step()
        after = state_of(loop.model, optimizer=loop.optimizer), identities_of(loop.model, optimizer=loop.optimizer)
        assert differences(before[0], after[0]) == []
        assert before[1] == after[1]
        assert hooks_of(loop.model) == 0

    def test_gradients_that_are_kept_are_not_those_that_training_changes(self):
        loop = Loop(rescale="none")
        for batch in batches(5):
            loop.backward(batch)
            with torch.no_grad():
                for parameter in loop.model.parameters():
                    parameter.grad.fill_(9.0)
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)


def hooks_of(model):
    return sum(len(p._backward_hooks or {}) + len(p._post_accumulate_grad_hooks or {}) for p in model.parameters())


class Interrupting(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise KeyboardInterrupt


class TestInterruptions:
    """A backward pass that is interrupted leaves nothing behind."""

    def interrupted(self):
        loop = Loop(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)))
        loop.epoch(batches())
        x, y = batches(1)[0]
        losses = F.cross_entropy(loop.model[1](Interrupting.apply(loop.model[0](x))), y, reduction="none")
        loop.stopper.observe(losses)
        with pytest.raises(KeyboardInterrupt):
            losses.mean().backward()
        loop.optimizer.zero_grad()
        return loop

    @pytest.mark.parametrize("action", ["step", "reset", "observe", "delete"])
    def test_hooks_are_removed_at_the_next_opportunity(self, action):
        loop = self.interrupted()
        model = loop.model
        if action == "step":
            loop.stopper.step()
            assert loop.value == pytest.approx(disparity(loop.rows[-4:]), rel=1e-5)  # the interrupted one is missing
        elif action == "reset":
            loop.stopper.reset()
        elif action == "observe":
            loop.epoch(batches())
            loop.stopper.step()
            assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        else:
            del loop
            gc.collect()
        assert hooks_of(model) == 0

    def test_a_step_that_fails_can_be_repeated(self, monkeypatch):
        loop = Loop()
        loop.epoch(batches())
        with monkeypatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr("heldin.gradients._products", lambda *_: (_ for _ in ()).throw(MemoryError))
            loop.stopper.step()
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        assert len(loop.stopper.history) == 1


def test_a_resumed_training_has_the_readings_of_one_that_was_not_interrupted():
    def train(loop, epochs):
        for _ in range(epochs):
            loop.epoch(batches())
            loop.stopper.step()

    whole = Loop(by_hand=False)
    train(whole, 4)
    first = Loop(by_hand=False)
    train(first, 2)
    file = io.BytesIO()
    torch.save([first.model.state_dict(), first.optimizer.state_dict(), first.stopper.state_dict()], file)
    stream = torch.get_rng_state()
    resumed = Loop(net(5), by_hand=False)
    torch.set_rng_state(stream)
    parts = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    for holder, part in zip((resumed.model, resumed.optimizer, resumed.stopper), parts, strict=True):
        holder.load_state_dict(part)
    train(resumed, 2)
    assert resumed.stopper.history == whole.stopper.history


class TestRefusals:
    """What cannot be read from the gradients of training is refused before training."""

    @pytest.mark.parametrize(
        ("signal", "reason"),
        [
            ("gradient_disparity", "rescale='std' is differentiated too, which would cost another backward pass"),
            (GradientDisparity(rescale="minmax"), "another backward pass"),
            (GradientDisparity(rescale="pooled_std"), "further batches"),
            ("train_val_disparity", "second set"),
            ("gsnr", "It needs SampleGradients"),
            ("label_wave", "It needs Outputs"),
        ],
    )
    def test_signals_that_need_passes_of_their_own(self, signal, reason):
        with pytest.raises(UnmeasurableError, match=reason):
            EarlyStopping(net(), signal=signal, probes="training")

    def test_losses_of_samples_if_there_is_one_for_the_batch_only(self):
        with pytest.raises(UnmeasurableError, match="losses of single samples"):
            EarlyStopping(net(), batch_loss=per_sample, signal=DETACHED, probes="training")

    def test_evaluation_mode(self):
        with pytest.raises(ArgumentError, match="those of training"):
            EarlyStopping(net(), signal=DETACHED, probes="training", mode="eval")

    def test_autocast_of_separate_passes(self):
        with pytest.raises(ArgumentError, match="precision is that of training"):
            EarlyStopping(net(), signal=DETACHED, probes="training", autocast=True)

    def test_a_single_number(self):
        loop = Loop()
        with pytest.raises(LossError, match="before any mean"):
            loop.stopper.observe(per_sample(loop.model, batches(1)[0]).mean())

    def test_a_loss_that_is_no_tensor(self):
        loop = Loop()
        losses = per_sample(loop.model, batches(1)[0])
        with pytest.raises(LossError, match=r"Parameter `loss` of observe\(\) .* Found a float. .* without item\(\)"):
            loop.stopper.observe(losses, loss=losses.mean().item())
        with pytest.raises(LossError, match="the losses of a batch as a tensor. Found a list"):
            loop.stopper.observe(losses.tolist())

    def test_outputs_in_place_of_losses(self):
        loop = Loop()
        for inputs, targets in batches(3):
            outputs = loop.model(inputs)
            loop.stopper.observe(outputs)
            nn.functional.cross_entropy(outputs, targets).backward()
        with pytest.raises(LossError, match="If these are outputs, pass what loss_fn"):
            loop.stopper.step()

    def test_losses_some_of_which_training_raises_are_passed_beside_the_loss(self):
        def train(stopper, losses, divide, beside):
            loss = losses.mean() + losses.var()
            stopper.observe(losses.detach() if beside else losses, loss=loss if beside else None)
            loss.backward()

        with pytest.raises(LossError, match=r"observe\(losses.detach\(\), loss=loss\)"):
            measured_once(partial(train, beside=False))
        with pytest.warns(HeldinWarning, match="times the mean of the observed losses"):
            assert measured_once(partial(train, beside=True)) > 0.0

    def test_losses_without_a_graph(self):
        loop = Loop()
        with pytest.raises(LossError, match="without a graph"):
            loop.stopper.observe(per_sample(loop.model, batches(1)[0]).detach())

    def test_a_step_without_losses(self):
        with pytest.raises(BatchesError, match="no backward pass of observed losses"):
            Loop().stopper.step()

    def test_a_call_with_neither_losses_nor_outputs(self):
        for arguments in ({}, {"indices": [0]}, {"outputs": torch.zeros(1)}, {"loss": torch.zeros(())}):
            with pytest.raises(ArgumentError, match=r"observe\(losses\)"):
                Loop().stopper.observe(**arguments)

    def test_losses_of_different_samples_in_one_pass(self):
        model = nn.Linear(4, 3)
        stopper = EarlyStopping(model, signal=DETACHED, probes="training")
        for _ in range(3):
            first, second = (per_sample(model, batches(1, size)[0]) for size in (8, 6))
            stopper.observe(first)
            stopper.observe(second)
            (first.mean() + second.mean()).backward()
        with pytest.raises(LossError, match="same samples"):
            stopper.step()


def test_losses_of_an_evaluation_are_not_observed():
    loop = Loop()
    with torch.no_grad():
        loop.stopper.observe(per_sample(loop.model, batches(1)[0]))
    assert loop.stopper.reader.capture.num_begun == 0


def test_losses_that_are_not_finite_raise_at_first_and_are_nan_later():
    def poisoned(loop):
        for batch in batches():
            losses = per_sample(loop.model, batch) * torch.nan
            loop.stopper.observe(losses)
            losses.mean().backward()
            loop.optimizer.zero_grad()

    loop = Loop()
    poisoned(loop)
    with pytest.raises(NotFiniteError):
        loop.stopper.step()
    loop = Loop()
    loop.epoch(batches())
    loop.stopper.step()
    poisoned(loop)
    with pytest.warns(HeldinWarning, match="Recorded as NaN"):
        loop.stopper.step()
    assert math.isnan(loop.value)


def test_observing_without_probes_of_training_does_nothing():
    model = net()
    stopper = EarlyStopping(model, nn.CrossEntropyLoss())
    losses = per_sample(model, batches(1)[0])
    stopper.observe(losses)
    assert not losses._backward_hooks


def test_reduced_gradients_are_refused():
    with pytest.raises(ArgumentError, match="Found `memory = 'bf16'`"):
        EarlyStopping(net(), signal=DETACHED, probes="training", memory="bf16")


def test_the_gradients_of_some_layers_can_be_read():
    loop = Loop(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), layers="2")
    loop.epoch(batches())
    loop.stopper.step()
    assert loop.value == pytest.approx(disparity([row[-27:] for row in loop.rows[-5:]]), rel=1e-5)


def measured_once(observe, *, divide=1.0, **arguments):
    """The first reading of a linear model, after four batches whose losses are passed to `observe(stopper, ...)`."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    stopper = EarlyStopping(model, signal="gradient_disparity[rescale=std_detached]", probes="training", **arguments)
    for _ in range(4):
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        losses = F.cross_entropy(model(x), y, reduction="none")
        observe(stopper, losses, divide)
        model.zero_grad()
    stopper.step()
    return stopper.history[0].values["gradient_disparity"]


def differentiate_mean(stopper, losses, divide):
    stopper.observe(losses)
    (losses.mean() / divide).backward()


def differentiate_separate_loss(stopper, losses, divide):
    loss = losses.mean() / divide
    stopper.observe(losses.detach(), loss=loss)
    loss.backward()


def differentiate_sum(stopper, losses, divide):
    loss = losses.sum()
    stopper.observe(losses.detach(), loss=loss)
    loss.backward()


def test_a_separate_loss_may_be_divided_or_summed():
    expected = measured_once(differentiate_mean)
    assert measured_once(differentiate_separate_loss) == pytest.approx(expected, rel=1e-6)
    assert measured_once(differentiate_separate_loss, divide=4.0) == pytest.approx(expected, rel=1e-6)
    assert measured_once(differentiate_sum) == pytest.approx(expected, rel=1e-6)


WEIGHTS = torch.tensor([0.1, 1.0, 5.0])


def weighted_once(train, *, penalty=0.0):
    """The first reading of a linear model, after four batches with class weights that `train(stopper, ...)` sees."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    stopper = EarlyStopping(model, signal=DETACHED, probes="training")
    for _ in range(4):
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        outputs = model(x)
        losses = F.cross_entropy(outputs, y, WEIGHTS, reduction="none")
        train(stopper, losses, F.cross_entropy(outputs, y, WEIGHTS), penalty * model.weight.square().sum())
        model.zero_grad()
    stopper.step()
    return stopper.history[0].values["gradient_disparity"]


def test_a_separate_loss_may_be_a_weighted_mean():
    def together(stopper, losses, loss, penalty):
        stopper.observe(losses)
        losses.mean().backward()

    def beside(stopper, losses, loss, penalty):
        stopper.observe(losses.detach(), loss=loss)
        (loss + penalty).backward()

    with pytest.warns(HeldinWarning, match="times the mean of the observed losses, which is right for a weighted mean"):
        found = weighted_once(beside)
    assert found == pytest.approx(weighted_once(together), rel=1e-5)
    with pytest.warns(HeldinWarning, match="weighted mean"):
        assert weighted_once(beside, penalty=0.1) != pytest.approx(found, rel=1e-3)  # its gradient is part of them


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_separate_loss_that_is_no_multiple_of_the_losses_does_not_end_training(value):
    loop = Loop()
    for epoch in range(2):
        for batch in batches():
            losses = per_sample(loop.model, batch)
            loss = losses.mean() * (value if epoch else 1.0)
            loop.stopper.observe(losses.detach() * (value if epoch and value else 1.0), loss=loss)
            (losses.mean() + 0.0 * loss).backward() if epoch and value else loss.backward()
            loop.model.zero_grad()
        with pytest.warns(HeldinWarning, match="NaN") if epoch and value else nullcontext():
            loop.stopper.step()
    first, second = (reading.values["gradient_disparity"] for reading in loop.stopper.history)
    assert first > 0.0
    assert math.isnan(second) if value else second == 0.0


def test_a_sum_over_tokens_is_a_known_multiple():
    values = []
    for reduce in (torch.mean, torch.sum, lambda losses: losses.sum(1).mean()):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        stopper = EarlyStopping(model, signal=DETACHED, probes="training")
        for _ in range(4):
            losses = model(torch.randn(8, 5, 4)).square().mean(2)
            loss = reduce(losses)
            stopper.observe(losses.detach(), loss=loss)
            loss.backward()
            model.zero_grad()
        stopper.step()
        values.append(stopper.history[0].values["gradient_disparity"])
    assert values[1:] == pytest.approx([values[0]] * 2, rel=1e-5)


def test_losses_of_padded_tokens_can_be_observed_beside_their_mean():
    values = []
    for beside in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        stopper = EarlyStopping(model, signal=DETACHED, probes="training")
        for _ in range(4):
            tokens, mask = torch.randn(8, 5, 4), torch.arange(5) < torch.randint(2, 6, (8, 1))
            losses = model(tokens).square().mean(2) * mask
            loss = losses.sum() / mask.sum()
            stopper.observe(losses.detach() if beside else losses, loss=loss if beside else None)
            loss.backward()
            model.zero_grad()
        with pytest.warns(HeldinWarning, match="weighted mean") if beside else nullcontext():
            stopper.step()
        values.append(stopper.history[0].values["gradient_disparity"])
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_ignored_samples_among_the_observed_losses_are_pointed_out():
    def ignoring(stopper, losses, divide):
        losses = losses * torch.tensor([0.0, 0.0, *[1.0] * 6])
        stopper.observe(losses)
        losses.mean().backward()

    with pytest.warns(HeldinWarning, match=r"2 of the 8 losses .* pass the losses of the others"):
        measured_once(ignoring)


def test_losses_that_are_observed_twice_are_refused():
    def twice(stopper, losses, divide):
        stopper.observe(losses)
        stopper.observe(losses)

    with pytest.raises(LossError, match="Found the same tensor twice"):
        measured_once(twice)


def test_the_error_of_a_missing_backward_pass_counts_the_calls_of_observe():
    with pytest.raises(BatchesError, match=r"and 4 calls of observe\(\)"):
        measured_once(lambda stopper, losses, divide: stopper.observe(losses))
    with pytest.raises(BatchesError, match=r"and no calls of observe\(\)"):
        measured_once(lambda stopper, losses, divide: None)


@pytest.mark.parametrize("every", [1, 4, 6, 20])
def test_step_may_be_called_after_each_micro_batch(every):
    loop, compared = Loop(every=every, unit="step"), []
    for number, batch in enumerate(batches(40)):
        loop.backward(batch, 4)
        if number % 4 == 3:
            loop.optimizer.step()
            loop.optimizer.zero_grad()
        loop.stopper.step()
        first = number // 4 * 4  # of the micro-batches at the same weights
        of_step = loop.rows[first : number + 1]
        if (number + 1) % every == 0 and len(of_step) == 4:
            assert loop.value == pytest.approx(disparity(of_step), rel=1e-5)
            compared.append(loop.stopper.history[-1].num_batches)
    assert compared
    assert set(compared) == {4}


def test_a_gradient_that_is_looked_at_before_the_backward_pass_counts_once():
    loop = Loop()
    for _ in range(2):
        for batch in batches():
            losses = per_sample(loop.model, batch)
            loop.rows.append(hand_collected(loop.model, losses))
            loop.stopper.observe(losses)
            torch.autograd.grad(losses.mean(), list(loop.model.parameters()), retain_graph=True)
            losses.mean().backward()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        assert loop.stopper.history[-1].num_batches == 5


def test_losses_that_are_observed_and_not_differentiated_do_not_count():
    loop = Loop()
    for _ in range(3):
        for batch in batches(12):
            loop.stopper.observe(per_sample(loop.model, batch))
            loop.backward(batch)
            loop.optimizer.step()
            loop.optimizer.zero_grad()
        loop.stopper.step()
        assert loop.value == pytest.approx(disparity(loop.rows[-5:]), rel=1e-5)
        assert loop.stopper.history[-1].num_batches == 5


def test_outputs_beside_a_loss_are_refused_where_they_cannot_be_losses():
    loop = Loop()
    for x, y in batches():
        outputs = loop.model(x)
        loss = F.cross_entropy(outputs, y)
        loop.stopper.observe(outputs.detach() - 5.0, loss=loss)
        loss.backward()
    with pytest.raises(LossError, match=r"Found a loss of 1\..* and a mean of -"):
        loop.stopper.step()


def test_the_reason_for_too_few_gradients_is_named():
    short, other = Loop(), Loop()
    short.epoch(batches(20))
    short.stopper.step()
    short.epoch(batches(3))
    with pytest.warns(HeldinWarning, match="There were 3 calls of observe.. before this call of step.. and 20 before"):
        short.stopper.step()
    other.model = net(1)
    with pytest.warns(HeldinWarning, match="reached no parameter of this model"):
        other.epoch(batches())
        other.stopper.step()


def test_a_state_with_a_reading_without_a_value_is_loaded():
    loop = Loop(unit="step")
    for batch in batches(3):
        loop.epoch([batch])
        loop.stopper.step()
    assert [reading.values["gradient_disparity"] is None for reading in loop.stopper.history] == [True, False, False]
    resumed = EarlyStopping(loop.model, signal=DETACHED, probes="training", unit="step")
    resumed.load_state_dict(loop.stopper.state_dict())
    assert resumed.history == loop.stopper.history
    assert resumed.decision == loop.stopper.decision


class WithoutDoubles(torch.Tensor):
    """A tensor that says it is on an Apple GPU, which has no double precision."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.double or torch.float64 in kwargs.values():
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        if func == torch.Tensor.device.__get__:
            return torch.device("mps")
        found = super().__torch_function__(func, types, args, kwargs)
        return found.as_subclass(torch.Tensor) if func is torch.Tensor.cpu else found


@pytest.mark.parametrize("separate", [False, True])
def test_a_device_without_double_precision_gives_the_same_result(separate):
    values, gradient = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, -1.0])
    loss = values.sum() if separate else None

    def result(place):
        own = None if loss is None else place(loss)
        term = ObservedLosses(place(values), own, 3, True, place(torch.ones(1 if separate else 3)))
        term.require_losses()
        return TrainingPass([], (place(gradient),), 0, (term,), 0).result(["none", "std_detached", "grad_std"])

    expected, found = result(lambda tensor: tensor), result(lambda tensor: tensor.as_subclass(WithoutDoubles))
    assert found.scales == expected.scales
    assert len(found.scales) == 3
