"""Keras on torch: the callback stops `fit`, and leaves no trace on the training."""

from __future__ import annotations

import os
import queue
import subprocess
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import heldin
from heldin.errors import ArgumentError, HeldinError, LossError, MissingExtraError
from heldin.integrations.keras import HeldInStopping

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # in Keras
NUM_BATCHES = 10  # of an epoch


@pytest.fixture
def make(program):
    """The function that makes the network of programs/keras_run.py."""
    return program("keras_run").mlp


@pytest.fixture
def arrays(mnist):
    return tuple(tensor.numpy() for tensor in mnist.tensors)


def fit(model, arrays, *callbacks, **options):
    torch.manual_seed(5)
    options = {"batch_size": 30, "epochs": 20, "verbose": 0, **options}
    return model.fit(*arrays, callbacks=[*callbacks], **options)


def everything(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [variable.value.detach().clone() for variable in variables]


def num_steps(model):
    return int(keras.ops.convert_to_tensor(model.optimizer.iterations))


def values_of(stopping):
    return [reading.values["gradient_disparity"] for reading in stopping.stopper.history]


class Steps(keras.callbacks.Callback):
    """Ends a plain training after so many batches."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def on_train_batch_end(self, batch, logs=None):
        self.limit -= 1
        self.model.stop_training = self.limit == 0


class Epochs(keras.callbacks.Callback):
    """The weights after each epoch, and how many batches went by."""

    def __init__(self):
        super().__init__()
        self.states, self.num_batches = [], 0

    def on_train_batch_end(self, batch, logs=None):
        self.num_batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self.states.append([variable.value.detach().clone() for variable in self.model.variables])


def test_scripted_values_stop_where_the_table_says(scripted, make, arrays):
    stopping, model = HeldInStopping(**scripted.arguments), make()
    epochs = -(-scripted.budget // NUM_BATCHES) if scripted.counts_steps else scripted.budget
    history = fit(model, arrays, stopping, epochs=epochs)
    scripted.check(stopping, num_steps(model) if scripted.counts_steps else len(history.epoch))


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
def test_training_with_and_without_it_is_the_same(arguments, options, make, arrays, same):
    def made():
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5, **options.get("optimizer", {}))
        return make(**{**options, "optimizer": optimizer})

    stopping, counting, model = HeldInStopping(patience=2, **arguments), Epochs(), made()
    history = fit(model, arrays, stopping, counting)
    after = torch.rand(1)
    assert stopping.decision.stop
    assert len(history.epoch) < 20
    other = made()
    limit = [Steps(counting.num_batches)] if "every" in arguments else []
    plain = fit(other, arrays, *limit, epochs=len(history.epoch))
    assert same(everything(model), everything(other))
    logged = {name: values for name, values in history.history.items() if not name.startswith("heldin/")}
    assert same(logged, plain.history)
    assert torch.equal(after, torch.rand(1))


def test_steps_are_counted_as_the_optimizer_takes_them(make, arrays):
    stopping = HeldInStopping(every=2)
    fit(make(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)), arrays, stopping, epochs=2)  # 20 batches
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3, 5]


def test_a_callback_that_is_no_list_is_run_in_step_with_training(make, arrays):
    results = []
    for callbacks in (lambda stopping: [stopping], lambda stopping: stopping):
        stopping = HeldInStopping(every=3, batches=3)
        torch.manual_seed(5)
        make().fit(*arrays, batch_size=30, epochs=2, verbose=0, callbacks=callbacks(stopping))
        results.append(values_of(stopping))
    assert results[0] == results[1]
    assert len(results[0]) == 6


def test_data_given_is_drawn_from_as_everywhere(make, arrays, mnist, same):
    loader = DataLoader(mnist, batch_size=30, shuffle=True)
    models, stopping = [make(), make()], HeldInStopping(signal=["gradient_disparity", "label_wave"], data=loader)
    for model, callbacks in zip(models, ([stopping], []), strict=True):
        torch.manual_seed(5)
        model.fit(loader, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    assert same(everything(models[0]), everything(models[1]))
    assert stopping.stopper.history[-1].values["label_wave"] > 0
    with pytest.raises(ArgumentError, match="Pass a DataLoader"):
        HeldInStopping(signal="label_wave")


def test_the_batches_measured_on_are_of_the_whole_epoch_and_chosen_by_seed(make, arrays):
    def losses(model, batch):
        seen.put(batch[0].sum().item())
        return nn.functional.nll_loss(torch.log(model(batch[0])), batch[1].long(), reduction="none")

    sums = {float(arrays[0][i : i + 30].sum()): i // 30 for i in range(0, 300, 30)}
    places = []
    for seed in (0, 0, 1):
        seen = queue.SimpleQueue()  # a list would be put back
        fit(make(), arrays, HeldInStopping(sample_losses=losses, seed=seed), epochs=4, shuffle=False)
        values = [seen.get() for _ in range(seen.qsize())]
        places.append([min(sums, key=lambda total: abs(total - value)) for value in values])
        places[-1] = [sums[total] for total in places[-1]]
    assert places[0] == places[1] != places[2]
    assert {*places[0]} > {0, 9}
    assert all(len({*places[0][i : i + 5]}) == 5 for i in range(0, 20, 5))


def test_fixed_batches_are_those_of_the_first_measurement(make, arrays):
    stopping = HeldInStopping(probes="fixed")
    model = make(keras.optimizers.SGD(1e-12))
    model.layers[1].trainable = False  # BatchNormalization would go on
    fit(model, arrays, stopping, epochs=3)
    assert len(stopping.state_dict()["passed"]) == 5
    again = HeldInStopping(probes="fixed")
    again.load_state_dict(stopping.state_dict())
    assert again.state_dict()["passed"][0] is stopping.state_dict()["passed"][0]
    other = make()
    fit(other, arrays, again, epochs=4, initial_epoch=3)
    assert len(values_of(again)) == 4
    assert again.state_dict()["passed"][0] is stopping.state_dict()["passed"][0]


def test_single_samples_have_their_true_gradients(arrays, mnist):
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


def square(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(keras.ops.one_hot(y_true, 10) - y_pred), axis=-1)


def test_the_compiled_loss_is_the_loss_one_would_give(make, arrays):
    def log_loss(model, batch):
        return nn.functional.nll_loss(torch.log(model(batch[0], training=True)), batch[1].long(), reduction="none")

    def weighted(model, batch):
        return log_loss(model, batch) * batch[2]

    def squared(model, batch):
        return (nn.functional.one_hot(batch[1].long(), 10) - model(batch[0], training=True)).square().sum(1)

    named = ["crossentropy", "sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy()]
    cases = [(named, log_loss, {}), ([square], squared, {}), (named[:1], weighted, {"class_weight": {0: 3.0, 1: 0.5}})]
    for losses, given, options in cases:
        expected = HeldInStopping(sample_losses=given)
        fit(make(loss=losses[0]), arrays, expected, epochs=2, **options)
        for loss in losses:
            stopping = HeldInStopping()
            fit(make(loss=loss), arrays, stopping, epochs=2, **options)
            assert values_of(stopping) == pytest.approx(values_of(expected), rel=1e-3)


def test_a_loss_that_is_not_the_compiled_one_is_refused_and_a_loss_given_helps(arrays, mnist):
    class Penalised(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(10)

        def call(self, x):
            return self.layer(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return super().compute_loss(x, y, y_pred, sample_weight) + 0.1

    inputs = keras.Input((784,))
    both = keras.Model(inputs, [keras.layers.Dense(10)(inputs), keras.layers.Dense(10)(inputs)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for model, targets, says in ((Penalised(), arrays[1], "overridden"), (both, [arrays[1]] * 2, "one output")):
        model.compile("sgd", loss if says == "overridden" else [loss, loss])
        with pytest.raises(LossError, match=says):
            fit(model, (arrays[0], targets), HeldInStopping(), epochs=1)
    stopping = HeldInStopping(loss_fn=nn.CrossEntropyLoss(), data=[*DataLoader(mnist, batch_size=30)])
    model = Penalised()
    model.compile("sgd", loss)
    fit(model, arrays, stopping, epochs=1)
    assert len(values_of(stopping)) == 1


@pytest.mark.parametrize("every", [None, 5])
def test_values_are_in_the_logs_and_so_in_the_history(every, make, arrays):
    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(logs.get("heldin/gradient_disparity"))

    batches = []
    stopping = HeldInStopping(every=every, patience=100)
    history = fit(make(), arrays, stopping, Seen(), epochs=3)
    values = values_of(stopping)
    assert history.history["heldin/gradient_disparity"] == (values if every is None else values[1::2])
    if every is not None:
        assert batches == [batch for i in range(0, 6, 2) for batch in [None] * 4 + [values[i]] * 5 + [values[i + 1]]]


def test_a_checkpoint_can_be_chosen_by_the_signal(make, arrays, tmp_path):
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", "heldin/gradient_disparity", mode="min", save_best_only=True
    )
    stopping = HeldInStopping()
    fit(make(), arrays, stopping, best, epochs=4)
    assert best.best == min(values_of(stopping))


@pytest.mark.parametrize("verbose", [0, 2])
def test_the_sentence_is_printed_once_unless_fit_is_silent(verbose, make, arrays, capsys):
    stopping = HeldInStopping(patience=1)
    fit(make(), arrays, stopping, verbose=verbose)
    assert capsys.readouterr().out.count(stopping.sentence) == bool(verbose)


@pytest.mark.parametrize("epochs", [3, 20], ids=["budget ends", "stopped"])
def test_training_ends_with_the_weights_asked_for(epochs, make, arrays, same):
    states, stopping, model = Epochs(), HeldInStopping(keep="before_rise", patience=2), make()
    fit(model, arrays, stopping, states, epochs=epochs)
    assert same([variable.value.detach() for variable in model.variables], states.states[stopping.decision.before])
    assert stopping.decision.stop == (epochs == 20)


def test_killed_and_resumed_it_decides_the_same(program, run_program, tmp_path):
    run, (straight, broken) = program("keras_run"), (tmp_path / "straight", tmp_path / "broken")
    stopping = HeldInStopping(patience=2)
    expected = run.outcome(stopping, run.trained(straight, stopping))
    assert expected["decision"]["stop"]
    assert expected["decision"]["epoch"] > 3
    printed, code = run_program("keras_run", broken, 3)
    assert code == -9, printed
    resumed = HeldInStopping(patience=2)
    assert run.outcome(resumed, run.trained(broken, resumed)) == expected


def test_patience_raised_on_resuming_holds_and_the_same_patience_stops_at_once(program, tmp_path, same):
    run = program("keras_run")
    first, again, patient = HeldInStopping(patience=1), HeldInStopping(patience=1), HeldInStopping(patience=3)
    model = run.trained(tmp_path, first)
    stopped = run.trained(tmp_path, again)
    assert again.decision == first.decision
    assert num_steps(stopped) == num_steps(model)
    longer = run.trained(tmp_path, patient)
    assert values_of(patient)[: len(values_of(first))] == values_of(first)
    assert num_steps(longer) > num_steps(model)
    assert patient.decision.epoch == num_steps(longer) // NUM_BATCHES - 1


def test_weights_carry_the_state_and_are_read_with_and_without_it(make, arrays, tmp_path):
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


def test_fit_begins_anew_unless_it_goes_on_from_an_epoch(make, arrays):
    stopping, model = HeldInStopping(patience=9), make()
    fit(model, arrays, stopping, epochs=2)
    fit(model, arrays, stopping, epochs=3, initial_epoch=2)
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2]
    fit(model, arrays, stopping, epochs=1)
    assert [reading.epoch for reading in stopping.stopper.history] == [0]


def test_a_training_that_broke_off_leaves_nothing_behind(make, arrays):
    class Broken(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise OSError

    model = make()
    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011
            fit(model, arrays, HeldInStopping(), Broken())
    stopping = HeldInStopping()
    fit(model, arrays, stopping, epochs=1)
    assert len(values_of(stopping)) == 1
    assert type(model.train_function).__name__ == "function"


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("keras_digits")
    assert num_added == 4
    marked()
    assert "gradient disparity rose for the 5th time" in (printed := capsys.readouterr().out)
    assert "trained for 40 epochs" not in printed
    plain()
    assert "trained for 40 epochs" in capsys.readouterr().out


def test_without_keras_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.keras", raising=False)
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[keras\]"):
        import heldin.integrations.keras  # noqa: F401


def test_a_signal_that_takes_steps_is_refused_at_once():
    with pytest.raises(ArgumentError, match="optimizers of its own. Found `signal = 'optimization_variance'`"):
        HeldInStopping(signal="optimization_variance")


def test_another_backend_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.keras", raising=False)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")  # none but torch is installed
    with pytest.raises(HeldinError, match=r"'jax'. Set it before Keras is imported: .*KERAS_BACKEND"):
        import heldin.integrations.keras  # noqa: F401


def test_a_backend_that_is_not_installed_is_named_with_the_remedy():
    command = [sys.executable, "-c", "import heldin.integrations.keras"]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    assert "MissingExtraError" in said
    assert 'asks for tensorflow. Set it before Keras is imported: os.environ["KERAS_BACKEND"] = "torch"' in said
