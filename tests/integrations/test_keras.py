"""Keras on torch: the callback stops `fit`, and does not change the training."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.data import DataLoader

import heldin
from heldin.errors import ArgumentError, BatchesError, HeldinError, HeldinWarning, UnmeasurableError
from heldin.integrations.keras import HeldInStopping, ReservoirSampler, StatelessLosses, _training_loss

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # in Keras
NUM_BATCHES = 10  # per epoch


@pytest.fixture
def make(program):
    """A function that makes the network of programs/keras_run.py."""
    return program("keras_run").mlp


@pytest.fixture
def arrays(mnist):
    return tuple(tensor.numpy() for tensor in mnist.tensors)


def fit(model, arrays, *callbacks, **options):
    torch.manual_seed(5)
    options = {"batch_size": 30, "epochs": 20, "verbose": 0, **options}
    return model.fit(*arrays, callbacks=[*callbacks], **options)


def copies(variables):
    return [variable.value.detach().clone() for variable in variables]


def all_state(model):
    return copies([*model.variables, *model.optimizer.variables, *model.metrics_variables])


def num_steps(model):
    return int(keras.ops.convert_to_tensor(model.optimizer.iterations))


class Recorder(keras.callbacks.Callback):
    """Records the weights after each epoch, and stops a plain training after so many steps."""

    def __init__(self, steps=None):
        super().__init__()
        self.steps, self.weights = steps, []

    def on_train_batch_end(self, batch, logs=None):
        if num_steps(self.model) == self.steps:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(copies(self.model.variables))


@pytest.fixture
def train(make, arrays):
    def train(stopping=None, *, epochs=20, steps=None, optimizer=None, **options):
        model = make(keras.optimizers.SGD(0.1, momentum=0.5, **optimizer or {}), **options)
        recorder = Recorder(steps if stopping is None else None)
        if steps is not None and stopping is not None:
            epochs = -(-steps // NUM_BATCHES)
        history = fit(model, arrays, *([] if stopping is None else [stopping]), recorder, epochs=epochs)
        logs = {name: values for name, values in history.history.items() if not name.startswith("heldin/")}
        return SimpleNamespace(
            epochs=len(history.epoch),
            steps=num_steps(model),
            state=[all_state(model), logs],
            weights=copies(model.variables),
            epoch_weights=recorder.weights,
        )

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed"}, {"regularizer": "l2"}),
        ({"every": 7}, {}),
        ({"every": 2}, {"optimizer": {"gradient_accumulation_steps": 3, "clipnorm": 0.5}}),
        ({}, {"dtype": "mixed_bfloat16"}),
    ],
    ids=["plain", "fixed, regularized", "steps", "accumulated and clipped", "mixed precision"],
)
def test_measuring_does_not_change_training(arguments, options, check_same_training):
    check_same_training(HeldInStopping(patience=2, **arguments), **options)


def test_the_line_of_an_epoch_shows_the_value(make, arrays, capsys):
    stopping = HeldInStopping()
    fit(make(), arrays, stopping, epochs=2, verbose=2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "loss:" in line]
    values = [reading.values["gradient_disparity"] for reading in stopping.stopper.history]
    shown = [re.search(r"heldin/gradient_disparity: ([\d.e+-]+)", line)[1] for line in lines]
    assert list(map(float, shown)) == pytest.approx(values, rel=1e-3)


def test_training_ends_with_the_kept_weights(check_kept_weights):
    check_kept_weights(HeldInStopping(keep="before_rise", patience=2))


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("keras_digits")


def test_the_steps_of_the_optimizer_are_counted(make, arrays):
    stopping = HeldInStopping(every=2)
    fit(make(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)), arrays, stopping, epochs=2)  # 20 batches
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3, 5]


def test_a_single_callback_measures_in_step_with_training(make, arrays, values_of):
    results = []
    for callbacks in (lambda stopping: [stopping], lambda stopping: stopping):
        stopping = HeldInStopping(every=3, batches=3)
        torch.manual_seed(5)
        make().fit(*arrays, batch_size=30, epochs=2, verbose=0, callbacks=callbacks(stopping))
        results.append(values_of(stopping))
    assert results[0] == results[1]
    assert len(results[0]) == 6


def test_batches_are_drawn_from_given_data(make, arrays, mnist, same_state):
    loader = DataLoader(mnist, batch_size=30, shuffle=True)
    models, stopping = [make(), make()], HeldInStopping(signal=["gradient_disparity", "label_wave"], data=loader)
    for model, callbacks in zip(models, ([stopping], []), strict=True):
        torch.manual_seed(5)
        model.fit(loader, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    assert same_state(all_state(models[0]), all_state(models[1]))
    assert stopping.stopper.history[-1].values["label_wave"] > 0
    with pytest.raises(ArgumentError, match="Pass a DataLoader"):
        HeldInStopping(signal="label_wave")


class Batches(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def test_batches_of_arrays_and_of_tensors_give_the_same_readings(make, arrays):
    chunks = [tuple(array[i : i + 30] for array in arrays) for i in range(0, 300, 30)]
    readings = []
    for data in (chunks, [tuple(map(torch.tensor, chunk)) for chunk in chunks]):
        stopping = HeldInStopping(signal=["gradient_disparity", "gsnr", "label_wave"], data=data)
        fit(make(), arrays, stopping, epochs=2)
        readings.append([reading.values for reading in stopping.stopper.history])
    assert readings[0] == readings[1]
    assert len(readings[0]) == 2


def test_a_dataset_of_arrays_is_refused_with_what_converts_it(make, arrays):
    data = Batches([tuple(array[i : i + 30] for array in arrays) for i in range(0, 300, 30)])
    with pytest.raises(BatchesError, match=r"Found NumPy arrays. Pass data=DataLoader\(data, batch_size=None\)"):
        fit(make(), arrays, HeldInStopping(data=data))
    stopping = HeldInStopping(data=DataLoader(data, batch_size=None))
    fit(make(), arrays, stopping, epochs=1)
    assert stopping.stopper.history[0].values["gradient_disparity"] > 0


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["NumPy", "torch"])
def test_a_single_batch_in_place_of_a_list_is_refused(kind, convert, arrays):
    found = rf"Found a single batch: a {kind.__name__} of 2 arrays. Pass a list of batches, .* or a loader"
    with pytest.raises(BatchesError, match=found):
        HeldInStopping(data=kind(map(convert, arrays)))


def test_a_list_of_batches_without_targets_is_accepted(arrays):
    inputs = arrays[0]
    data = HeldInStopping(data=[inputs[:30], inputs[30:45]]).data
    assert [type(batch) for batch in data] == [torch.Tensor] * 2


def test_a_model_is_refused_with_what_to_write(make):
    with pytest.raises(ArgumentError, match="Found a Sequential without a name.*known from the trainer"):
        HeldInStopping(make())


def test_the_measured_batches_are_sampled_from_the_whole_epoch_by_seed(make, arrays):
    def losses(model, batch):
        seen.put(batch[0].sum().item())
        return nn.functional.nll_loss(torch.log(model(batch[0])), batch[1].long(), reduction="none")

    sums = {float(arrays[0][i : i + 30].sum()): i // 30 for i in range(0, 300, 30)}
    places = []
    for seed in (0, 0, 1):
        seen = queue.SimpleQueue()  # the contents of a list would be restored
        fit(make(), arrays, HeldInStopping(sample_losses=losses, seed=seed), epochs=4, shuffle=False)
        values = [seen.get() for _ in range(seen.qsize())][5:]  # without the check before training
        places.append([min(sums, key=lambda total: abs(total - value)) for value in values])
        places[-1] = [sums[total] for total in places[-1]]
    assert places[0] == places[1] != places[2]
    assert {*places[0]} > {0, 9}
    assert all(len({*places[0][i : i + 5]}) == 5 for i in range(0, 20, 5))


def test_fixed_batches_are_those_of_the_first_measurement(make, arrays, values_of):
    stopping = HeldInStopping(probes="fixed")
    model = make(keras.optimizers.SGD(1e-12))
    model.layers[1].trainable = False  # BatchNormalization would change
    fit(model, arrays, stopping, epochs=3)
    assert len(stopping.state_dict()["passed"]) == 5
    again = HeldInStopping(probes="fixed")
    again.load_state_dict(stopping.state_dict())
    assert again.state_dict()["passed"][0] is stopping.state_dict()["passed"][0]
    other = make()
    fit(other, arrays, again, epochs=4, initial_epoch=3)
    assert len(values_of(again)) == 4
    assert again.state_dict()["passed"][0] is stopping.state_dict()["passed"][0]


def test_values_equal_those_of_the_same_model_in_torch(arrays, mnist):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
    model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batches = [*DataLoader(mnist, batch_size=100)]
    stopping = HeldInStopping(signal=["gsnr", "gradient_disparity"], data=batches, batches=3)
    fit(model, arrays, stopping, epochs=1)
    linear = nn.Linear(784, 10)
    with torch.no_grad():
        linear.weight.copy_(model.trainable_variables[0].value.T)
        linear.bias.copy_(model.trainable_variables[1].value)
    expected = heldin.measure(linear, nn.CrossEntropyLoss(), batches, signals=["gsnr", "gradient_disparity"])
    assert stopping.stopper.history[0].values == pytest.approx(expected, rel=1e-4)


class Smoothed(keras.Sequential):
    """Its loss is not the compiled one, and has a penalty."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        penalty = sum(keras.ops.sum(keras.ops.square(variable)) for variable in self.trainable_variables)
        return nn.functional.cross_entropy(y_pred, y.long(), label_smoothing=0.3) + 0.01 * penalty


def test_an_overridden_compute_loss_is_taken_apart(arrays, mnist, values_of):
    data, values = [*DataLoader(mnist, batch_size=30)], []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss(label_smoothing=0.3)}):
        keras.utils.set_random_seed(3)
        model = Smoothed([keras.Input((784,)), keras.layers.Dense(10)])
        model.compile("sgd", LOGITS)
        stopping = HeldInStopping(data=data, **arguments)
        notice = contextlib.nullcontext()
        if not arguments:
            notice = pytest.warns(HeldinWarning, match="A part of the training loss is the same for every batch")
        with notice:
            fit(model, arrays, stopping, epochs=2)
        values.append(values_of(stopping))
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-3)


class Dice(keras.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        found, target = y_pred.softmax(1), nn.functional.one_hot(y.long(), 10)
        return 1.0 - 2.0 * (found * target).sum() / (found.sum() + target.sum())


def test_a_compute_loss_of_whole_batches_is_measured_with_a_notice(arrays, values_of):
    model = Dice([keras.Input((784,)), keras.layers.Dense(10)])
    model.compile("sgd", LOGITS)
    stopping = HeldInStopping()
    with pytest.warns(HeldinWarning, match="measured as one number per batch"):
        fit(model, arrays, stopping, epochs=2)
    assert len(values_of(stopping)) == 2
    with pytest.warns(HeldinWarning, match="measured as one number per batch"):
        fit(model, arrays, stopping, epochs=3, initial_epoch=2)
    assert len(values_of(stopping)) == 3


def test_the_losses_of_several_outputs_are_added(values_of):
    x, y = np.random.default_rng(1).random((60, 4), np.float32), np.arange(60) % 3
    values = []

    def losses(model, batch):
        inputs, targets = batch
        pairs = zip(model(inputs), targets, (1.0, 0.5), strict=True)
        return sum(w * nn.functional.cross_entropy(o, t.long(), reduction="none") for o, t, w in pairs)

    for arguments in ({}, {"sample_losses": losses}):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((4,))
        model = keras.Model(inputs, [layers.Dense(3)(inputs), layers.Dense(3)(inputs)])
        model.compile("sgd", [LOGITS, LOGITS], loss_weights=[1.0, 0.5])
        stopping = HeldInStopping(**arguments)
        model.fit(x, [y, y[::-1].copy()], batch_size=6, epochs=2, verbose=0, callbacks=[stopping])
        values.append(values_of(stopping))
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-3)


@pytest.mark.parametrize("every", [None, 5])
def test_values_are_in_the_logs_and_the_history(every, make, arrays, values_of):
    class LogRecorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(logs.get("heldin/gradient_disparity"))

    batches = []
    stopping = HeldInStopping(every=every, patience=100)
    history = fit(make(), arrays, stopping, LogRecorder(), epochs=3)
    values = values_of(stopping)
    assert history.history["heldin/gradient_disparity"] == (values if every is None else values[1::2])
    if every is not None:
        assert batches == [batch for i in range(0, 6, 2) for batch in [None] * 4 + [values[i]] * 5 + [values[i + 1]]]


def test_a_checkpoint_can_monitor_the_signal(make, arrays, tmp_path, values_of):
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", "heldin/gradient_disparity", mode="min", save_best_only=True
    )
    stopping = HeldInStopping()
    fit(make(), arrays, stopping, best, epochs=4)
    assert best.best == min(values_of(stopping))


@pytest.mark.parametrize("verbose", [0, 2])
def test_the_sentence_is_printed_once_unless_fit_is_not_verbose(verbose, make, arrays, capsys):
    stopping = HeldInStopping(patience=1)
    fit(make(), arrays, stopping, verbose=verbose)
    assert capsys.readouterr().out.count(stopping.sentence) == bool(verbose)


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_the_same(program, kill_program, tmp_path):
    run, folder = program("keras_run"), tmp_path / "killed"
    stopping, resumed = HeldInStopping(patience=2), HeldInStopping(patience=2)
    expected = run.summary_of(stopping, run.train(tmp_path / "whole", stopping))
    assert expected["decision"]["stop"]
    assert expected["decision"]["epoch"] > 3
    kill_program("keras_run", folder, 3)
    assert run.summary_of(resumed, run.train(folder, resumed)) == expected


def test_a_resumed_training_stops_at_once_unless_patience_is_raised(program, tmp_path, values_of):
    run = program("keras_run")
    first, again, patient = HeldInStopping(patience=1), HeldInStopping(patience=1), HeldInStopping(patience=3)
    model = run.train(tmp_path, first)
    stopped = run.train(tmp_path, again)
    assert again.decision == first.decision
    assert num_steps(stopped) == num_steps(model)
    longer = run.train(tmp_path, patient)
    assert values_of(patient)[: len(values_of(first))] == values_of(first)
    assert num_steps(longer) > num_steps(model)
    assert patient.decision.epoch == num_steps(longer) // NUM_BATCHES - 1


def test_the_state_is_saved_with_the_weights_and_is_optional(make, arrays, tmp_path, values_of):
    stopping, model = HeldInStopping(), make()
    fit(model, arrays, stopping, epochs=2)
    model.save_weights(tmp_path / "with.weights.h5")
    plain = make()
    fit(plain, arrays, epochs=1)
    plain.load_weights(tmp_path / "with.weights.h5")
    plain.save_weights(tmp_path / "without.weights.h5")
    resumed = HeldInStopping(patience=9)
    resumed.set_model(plain)
    plain.load_weights(tmp_path / "without.weights.h5")
    assert resumed.state_dict() == {}
    plain.load_weights(tmp_path / "with.weights.h5")
    fit(plain, arrays, resumed, epochs=3, initial_epoch=2)
    assert values_of(resumed)[:2] == values_of(stopping)
    assert [reading.epoch for reading in resumed.stopper.history] == [0, 1, 2]
    model.save(tmp_path / "model.keras")
    assert not hasattr(keras.saving.load_model(tmp_path / "model.keras"), "heldin")


def test_fit_starts_again_unless_it_has_an_initial_epoch(make, arrays):
    stopping, model = HeldInStopping(patience=9), make()
    fit(model, arrays, stopping, epochs=2)
    fit(model, arrays, stopping, epochs=3, initial_epoch=2)
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2]
    fit(model, arrays, stopping, epochs=1)
    assert [reading.epoch for reading in stopping.stopper.history] == [0]


def test_an_interrupted_training_leaves_the_model_usable(make, arrays, values_of):
    class Interrupts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise OSError

    model = make()
    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011
            fit(model, arrays, HeldInStopping(), Interrupts())
    stopping = HeldInStopping()
    fit(model, arrays, stopping, epochs=1)
    assert len(values_of(stopping)) == 1
    assert type(model.train_function).__name__ == "function"


def test_a_signal_that_takes_optimizer_steps_is_refused():
    with pytest.raises(ArgumentError, match="its own optimizers. Found `signal = 'optimization_variance'`"):
        HeldInStopping(signal="optimization_variance")


def test_another_backend_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.keras", raising=False)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")  # only torch is installed
    with pytest.raises(HeldinError, match=r"'jax'. Set it before Keras is imported: .*KERAS_BACKEND"):
        import heldin.integrations.keras  # noqa: F401


def test_a_backend_that_is_not_installed_is_named_with_a_remedy():
    command = [sys.executable, "-c", "import heldin.integrations.keras"]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    assert "MissingExtraError" in printed
    assert 'needs tensorflow. Set it before Keras is imported: os.environ["KERAS_BACKEND"] = "torch"' in printed


def sample(num, batches, seed=0, num_measurements=0):
    sampler = ReservoirSampler(num, seed)
    sampler.restart(num_measurements)
    for batch in batches:
        sampler.add(batch)
    return [*sampler.batches]


def test_the_sampler_keeps_all_batches_if_there_are_few():
    assert sample(3, []) == []
    assert sample(3, "ab") == ["a", "b"]
    assert sample(3, "abc") == ["a", "b", "c"]


def test_the_sampler_keeps_every_batch_with_equal_probability():
    times = Counter(batch for seed in range(600) for batch in sample(3, range(10), seed))
    assert set(times) == set(range(10))
    assert all(135 <= num <= 225 for num in times.values())  # expected 180, standard deviation 11


def test_the_sample_depends_on_seed_and_measurement():
    choices = {(seed, num): sample(3, range(50), seed, num) for seed in (0, 1) for num in (0, 1)}
    assert len(set(map(tuple, choices.values()))) == 4
    assert sample(3, range(50), 1, 1) == choices[1, 1]


def test_a_small_last_batch_is_left_out_after_two_others():
    def batches(*sizes):
        return [(np.zeros((size, 2)), np.zeros(size)) for size in sizes]

    def sizes(num, *given, seed=0):
        return [len(x) for x, _ in sample(num, batches(*given), seed)]

    assert sizes(3, 4, 4, 1) == [4, 4]
    assert sizes(3, 4, 1) == [4, 1]
    assert sizes(3, 4, 4, 2) == [4, 4, 2]
    sampler = ReservoirSampler(3, seed=0)
    for batch in batches(*[8] * 5):
        sampler.add(batch)
    sampler.restart(1)  # of a training with smaller batches
    for batch in batches(*[2] * 5):
        sampler.add(batch)
    assert [len(x) for x, _ in sampler.batches] == [2, 2, 2]
    assert all(sizes(3, *[4] * 5, 1, *[4] * 5, 1, seed=seed) == [4] * 3 for seed in range(20))


def test_earlier_batches_stay_until_there_are_enough_new_ones():
    sampler = ReservoirSampler(3, seed=0)
    for batch in "abcd":
        sampler.add(batch)
    before = [*sampler.batches]
    sampler.restart(1)
    assert [*sampler.batches] == before
    sampler.add("e")
    assert [*sampler.batches] == [*before[1:], "e"]
    for batch in "fg":
        sampler.add(batch)
    assert [*sampler.batches] == ["e", "f", "g"]


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20), st.integers(0, 99))
def test_the_sampler_keeps_the_right_number_of_new_and_earlier_batches(num, num_old, num_new, seed):
    sampler = ReservoirSampler(num, seed)
    for batch in range(num_old):
        sampler.add(batch)
    sampler.restart(1)
    for batch in range(100, 100 + num_new):
        sampler.add(batch)
    found = [*sampler.batches]
    assert len(found) == len(set(found)) == min(num, num_old + num_new)
    assert sum(batch >= 100 for batch in found) == min(num, num_new)


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 0, 1, 2])
ONE_HOT = F.one_hot(Y, 3).float()
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def small_model(loss, *hidden, units=3, activation=None, regularizer=None, kind=keras.Sequential):
    keras.utils.set_random_seed(0)
    last = layers.Dense(units, activation=activation, kernel_regularizer=regularizer)
    made = kind([keras.Input((4,)), *hidden, last])
    made.compile("sgd", loss)
    return made.eval()


def squared(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


LOSSES = {
    "loss object": (LOGITS, {}, Y, lambda out: F.cross_entropy(out, Y, reduction="none")),
    "name": ("mse", {}, ONE_HOT, lambda out: (out - ONE_HOT).square().mean(1)),
    "function": (squared, {}, ONE_HOT, lambda out: (out - ONE_HOT).square().sum(1)),
    "crossentropy, sparse": ("crossentropy", {"activation": "softmax"}, Y, lambda out: -out[range(6), Y].log()),
    "crossentropy, a column": ("CE", {"activation": "softmax"}, Y[:, None], lambda out: -out[range(6), Y].log()),
    "crossentropy, one-hot": ("ce", {"activation": "softmax"}, ONE_HOT, lambda out: -out[range(6), Y].log()),
    "crossentropy, binary": (
        "crossentropy",
        {"activation": "sigmoid", "units": 1},
        ONE_HOT[:, :1],
        lambda out: F.binary_cross_entropy(out, ONE_HOT[:, :1], reduction="none")[:, 0],
    ),
}


@pytest.mark.parametrize(("loss", "options", "targets", "expected"), LOSSES.values(), ids=LOSSES)
def test_the_compiled_loss_is_computed_per_sample(loss, options, targets, expected):
    made = small_model(loss, **options)
    found = StatelessLosses()(made, (X, targets))
    torch.testing.assert_close(found, expected(made(X)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.mean(), _training_loss(made, (X, targets)), rtol=1e-4, atol=1e-6)


def test_sample_weights_and_regularizers_are_part_of_each_loss():
    made, weights = small_model(LOGITS, regularizer=keras.regularizers.L2(0.5)), torch.arange(6.0)
    penalty = 0.5 * made.trainable_variables[0].value.square().sum()
    expected = weights * F.cross_entropy(made(X), Y, reduction="none") + penalty
    torch.testing.assert_close(StatelessLosses()(made, (X, Y, weights)), expected)
    torch.testing.assert_close(expected.mean(), _training_loss(made, (X, Y, weights)))


def test_the_compiled_loss_keeps_its_reduction():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    made = small_model(loss)
    assert StatelessLosses()(made, (X, Y)).shape == (6,)
    assert _training_loss(made, (X, Y)) == StatelessLosses()(made, (X, Y)).sum()
    assert (loss.reduction, made.loss.reduction) == ("sum", "sum")


def test_updates_of_layer_variables_are_discarded():
    made = small_model(LOGITS, layers.BatchNormalization()).train()
    before = copies(made.non_trainable_variables)
    found = StatelessLosses()(made, (X, Y))
    assert found.shape == (6,)
    assert len(before) == 2  # the moving mean and variance
    assert all(map(torch.equal, copies(made.non_trainable_variables), before))
    made(X, training=True)
    assert not any(map(torch.equal, copies(made.non_trainable_variables), before))  # as in training


@pytest.mark.parametrize("argument", ["loss_fn", "sample_losses"])
def test_buffers_of_a_given_loss_are_restored(argument):
    class Counting(nn.CrossEntropyLoss):
        def __init__(self):
            super().__init__(reduction="none")
            self.register_buffer("num_calls", torch.zeros(()))

        def forward(self, first, second):
            self.num_calls += 1
            if argument == "sample_losses":  # called with model and batch
                first, second = first(second[0]), second[1]
            return super().forward(first, second)

    loss = Counting()
    probe = heldin.Probe(small_model(LOGITS), None, sample_losses=StatelessLosses(**{argument: loss}))
    with probe.session():
        assert len(probe.losses((X, Y))) == 6
    assert loss.num_calls == 0


def test_losses_use_the_weights_of_a_functional_call():
    class Losses(nn.Module):
        def __init__(self, made):
            super().__init__()
            self.made = made

        def forward(self, batch):
            return StatelessLosses()(self.made, batch)

    made = small_model(LOGITS)
    losses = Losses(made)
    doubled = {name: 2.0 * value.detach() for name, value in losses.named_parameters()}
    found = functional_call(losses, doubled, ((X, Y),))
    torch.testing.assert_close(found, F.cross_entropy(2.0 * made(X), Y, reduction="none"))


@pytest.mark.parametrize("training", [True, False])
def test_layers_run_in_the_mode_of_the_model(training):
    made = small_model(LOGITS, layers.BatchNormalization()).train(training)
    found = StatelessLosses(nn.CrossEntropyLoss())(made, (X, Y))
    expected = F.cross_entropy(made(X, training=training), Y, reduction="none")
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, F.cross_entropy(made(X, training=not training), Y, reduction="none"))


def batch_loss(model, batch):
    return F.nll_loss(torch.log(model(batch[0], training=model.training)), batch[1].long())


@pytest.mark.parametrize("warmup", [0, 10])
def test_what_cannot_be_measured_is_refused_before_the_first_step(warmup, make, arrays):
    model = make()
    stopping = HeldInStopping(batch_loss=batch_loss, warmup=warmup)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        fit(model, arrays, stopping)
    assert num_steps(model) == 0


def test_a_loss_of_whole_batches_is_measured(make, arrays, values_of):
    values = []
    for losses in ({"batch_loss": batch_loss}, {}):
        stopping = HeldInStopping(signal=heldin.GradientDisparity(rescale="mean"), **losses)
        fit(make(), arrays, stopping, epochs=2)
        values.append(values_of(stopping))
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-4)
