"""skorch: the callback stops a net, and does not change the training."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, GradientNormClipping, LRScheduler
from skorch.hf import AccelerateMixin
from torch import nn
from torch.nn.functional import cross_entropy

from heldin import GradientDisparity, NthRise
from heldin.errors import ArgumentError, HeldinWarning, UnmeasurableError
from heldin.integrations.skorch import HeldInStopping, NetLosses

NUM_BATCHES = 10  # per epoch
LOSS = nn.CrossEntropyLoss()


def make_net(module, *callbacks, kind=NeuralNetClassifier, **options):
    fixed = {"criterion": nn.CrossEntropyLoss, "optimizer__momentum": 0.5, "lr": 0.1, "batch_size": 30, "verbose": 0}
    shuffled = {"train_split": None, "iterator_train__shuffle": True, "max_epochs": 20, "classes": list(range(10))}
    return kind(module, callbacks=[*callbacks], **fixed | shuffled | options)


def fit(net, dataset, **options):
    torch.manual_seed(5)
    return net.fit(*dataset.tensors, **options)


def num_steps(net):
    return sum(len(row["batches"]) for row in net.history)


class StopAfter(Callback):
    """Ends a plain training after so many steps, in skorch's way."""

    def __init__(self, steps):
        self.steps = steps

    def on_batch_end(self, net, training=False, **kwargs):
        if num_steps(net) == self.steps:
            raise KeyboardInterrupt


class EpochWeights(Callback):
    def initialize(self):
        self.weights_ = []
        return self

    def on_epoch_end(self, net, **kwargs):
        self.weights_.append({name: value.clone() for name, value in net.module_.state_dict().items()})


@pytest.fixture
def train(make_mlp, mnist):
    def train(stopping=None, *, epochs=20, steps=None):
        recorder = EpochWeights()
        if steps is not None:
            epochs = -(-steps // NUM_BATCHES)
        last = StopAfter(steps) if stopping is None else stopping
        net = fit(make_net(make_mlp(), GradientNormClipping(0.5), recorder, last, max_epochs=epochs), mnist)
        weights = net.module_.state_dict()
        return SimpleNamespace(
            epochs=len(net.history),
            steps=num_steps(net),
            state=[weights, net.optimizer_.state_dict()],
            weights=weights,
            epoch_weights=recorder.weights_,
        )

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]}, {"every": 7}],
    ids=["plain", "fixed, three signals", "steps"],
)
def test_measuring_does_not_change_training(arguments, check_same_training):
    check_same_training(HeldInStopping(patience=2, **arguments))


def test_training_ends_with_the_kept_weights(check_kept_weights):
    check_kept_weights(HeldInStopping(keep="before_rise", patience=2))


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("skorch_digits")


def test_the_steps_of_the_optimizer_are_counted_with_accelerate(make_mlp, mnist, same_state):
    from accelerate import Accelerator

    class Accelerated(AccelerateMixin, NeuralNetClassifier):
        pass

    nets = []
    for callbacks in ([HeldInStopping(every=2)], []):
        accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
        options = {"kind": Accelerated, "accelerator": accelerator, "max_epochs": 2}
        nets.append(fit(make_net(make_mlp(), *callbacks, **options), mnist))
    assert [reading.epoch for reading in nets[0].heldin_.stopper.history] == [1, 3, 5, 7, 9]  # of 20 batches
    assert same_state(nets[0].module_.state_dict(), nets[1].module_.state_dict())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # read by dynamo
def test_a_compiled_net_gives_the_same_values(make_mlp, mnist, same_state):
    results = []
    for options in ({}, {"compile": True, "compile__backend": "eager"}):
        net = fit(make_net(make_mlp(), HeldInStopping(), max_epochs=2, **options), mnist)
        results.append((net.heldin_.stopper.history, [*net.module_.state_dict().values()]))
    assert results[0][0] == results[1][0]
    assert same_state(results[0][1], results[1][1])
    assert net.criterion_.reduction == "mean"


BATCH = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])


class Scaled(nn.Linear):
    """Takes an argument of `fit`."""

    def forward(self, x, scale=1.0):
        return scale * super().forward(x)


def small_net(criterion=nn.CrossEntropyLoss, kind=NeuralNet, **options):
    return kind(Scaled(4, 3), criterion, train_split=None, **options).initialize()


def test_the_criterion_is_unreduced_only_while_losses_are_computed():
    net = small_net(criterion__label_smoothing=0.1)
    module = net.module_
    expected = cross_entropy(module(BATCH[0]), BATCH[1], reduction="none", label_smoothing=0.1)
    assert torch.equal(NetLosses(net)(module, BATCH), expected)
    assert (net.module_, net.criterion_.reduction) == (module, "mean")


def test_losses_are_computed_with_the_given_model_and_the_arguments_of_fit():
    losses, other = NetLosses(small_net()), Scaled(4, 3)
    losses.fit_params = {"scale": 3.0}
    expected = cross_entropy(3.0 * other(BATCH[0]), BATCH[1], reduction="none")
    assert torch.equal(losses(other, BATCH), expected)


def test_a_criterion_with_one_loss_per_sample_is_used_as_it_is():
    class Margin(nn.Module):
        def forward(self, scores, y):
            return 1.0 - scores[range(len(y)), y]

    net = small_net(Margin)
    assert torch.equal(NetLosses(net)(net.module_, BATCH), 1.0 - net.module_(BATCH[0])[range(5), BATCH[1]])


def test_get_loss_is_called_in_training_mode():
    class Penalised(NeuralNet):
        def get_loss(self, y_pred, y_true, X=None, training=False):
            return super().get_loss(y_pred, y_true, X, training) + (X.sum() if training else 0.0)

    net = small_net(kind=Penalised)
    expected = cross_entropy(net.module_(BATCH[0]), BATCH[1], reduction="none") + BATCH[0].sum()
    assert torch.equal(NetLosses(net)(net.module_, BATCH), expected)


def test_the_net_is_unchanged_after_an_error():
    net = small_net()
    module, criterion = net.module_, net.criterion_
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        NetLosses(net)(nn.Linear(9, 3), BATCH)
    assert (net.module_, net.criterion_, criterion.reduction) == (module, criterion, "mean")


class Probabilities(nn.Sequential):
    """skorch's classifier expects probabilities for its default criterion, NLLLoss."""

    def forward(self, x, scale=1.0):
        return torch.softmax(super().forward(x) * scale, dim=1)


@pytest.fixture
def values_of(values_of):
    return lambda net: values_of(net.heldin_)


def test_the_nets_own_loss_gives_the_same_values_as_a_given_loss(mnist, make_mlp, values_of):
    def nll(module, batch):
        return -torch.log(module(batch[0], scale=2.0)[range(len(batch[1])), batch[1]] + torch.finfo().eps)

    values = []
    for arguments in ({}, {"sample_losses": nll}):
        module = Probabilities(*make_mlp())
        net = fit(make_net(module, HeldInStopping(**arguments), criterion=nn.NLLLoss, max_epochs=2), mnist, scale=2.0)
        values.append(values_of(net))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


class Averaged(nn.Module):
    def forward(self, scores, y):
        return cross_entropy(scores, y)


class Dice(nn.Module):
    def forward(self, scores, y):
        found, target = scores.softmax(1), nn.functional.one_hot(y, 10)
        return 1.0 - 2.0 * (found * target).sum() / (found.sum() + target.sum())


class Summed(NeuralNetClassifier):
    """A loss that is neither the mean nor the sum of the criterion's, and a penalty."""

    def get_loss(self, y_pred, y_true, *args, **kwargs):
        penalty = sum(parameter.square().sum() for parameter in self.module_.parameters())
        return 3.0 * super().get_loss(y_pred, y_true, *args, **kwargs).sum() + 0.01 * penalty


@pytest.mark.parametrize(
    "options", [{"criterion": Averaged}, {"criterion__weight": torch.ones(10) * 2.0}], ids=["averages", "weights"]
)
def test_a_criterion_that_averages_is_taken_apart(options, make_mlp, mnist, values_of):
    values = []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss()}):
        net = make_net(make_mlp(), HeldInStopping(**arguments), max_epochs=2, **options)
        values.append(values_of(fit(net, mnist)))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert len(values[0]) == 2


def test_a_penalty_is_left_out_of_a_loss_that_is_taken_apart(make_mlp, mnist, values_of):
    net = make_net(make_mlp(), HeldInStopping(), kind=Summed, max_epochs=1)
    with pytest.warns(HeldinWarning, match="A part of the training loss is the same for every batch"):
        fit(net, mnist)
    given = fit(make_net(make_mlp(), HeldInStopping(loss_fn=LOSS), kind=Summed, max_epochs=1), mnist)
    assert values_of(net) == pytest.approx(values_of(given), rel=1e-3)


def test_a_criterion_of_whole_batches_is_measured_with_a_notice(mlp, mnist, values_of):
    net = make_net(mlp, HeldInStopping(), criterion=Dice, max_epochs=2)
    with pytest.warns(HeldinWarning, match="measured as one number per batch"):
        fit(net, mnist)
    assert len(values_of(net)) == 2
    assert net.heldin_.stopper.signals["gradient_disparity"].rescale == "mean"
    loaded = pickle.loads(pickle.dumps(net))
    assert loaded.heldin_.sentence == net.heldin_.sentence
    with pytest.warns(HeldinWarning, match="measured as one number per batch"):
        loaded.partial_fit(*mnist.tensors, epochs=1)
    assert values_of(loaded)[:2] == values_of(net)
    assert len(values_of(loaded)) == 3


def test_named_inputs_and_a_validation_split(mnist, values_of):
    class NamedInput(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(784, 1)

        def forward(self, pixels):
            return self.layer(pixels)

    x, y = mnist.tensors
    net = NeuralNet(NamedInput, nn.MSELoss, batch_size=30, max_epochs=2, verbose=0, callbacks=[HeldInStopping()])
    net.fit({"pixels": x.numpy()}, y.float().unsqueeze(1).numpy(), epochs=2)
    assert len(values_of(net)) == 2
    assert "valid_loss" in net.history[-1]


def test_later_callbacks_run_before_the_net_is_stopped(mlp, mnist):
    stopping, later = HeldInStopping(patience=1), EpochWeights()
    net = fit(make_net(mlp, stopping, LRScheduler("StepLR", step_size=5), later), mnist)
    assert len(later.weights_) == len(net.history) == stopping.decision.epoch + 1
    assert all("dur" in row for row in net.history)
    assert [name for name, _ in net.callbacks_].count("heldin_stop") == 0


@pytest.mark.parametrize("patiences", [(1, 9), (9, 1)])
def test_either_of_two_callbacks_stops(patiences, mlp, mnist):
    both = [HeldInStopping(patience=patience) for patience in patiences]
    net = fit(make_net(mlp, *both), mnist)
    assert sorted(stopping.decision.stop for stopping in both) == [False, True]
    assert len(net.history) < 20
    assert [name for name, _ in net.callbacks_].count("heldin_stop") == 0


def test_a_stop_is_not_an_interrupt_and_an_interrupt_is_not_a_stop(mlp, mnist):
    class RecordsInterrupts(NeuralNetClassifier):
        def fit_loop(self, *args, **kwargs):
            try:
                return super().fit_loop(*args, **kwargs)
            except KeyboardInterrupt:
                interrupts.append(True)
                raise

    interrupts = []
    net = fit(make_net(mlp, HeldInStopping(patience=1), kind=RecordsInterrupts), mnist)
    assert (net.heldin_.decision.stop, interrupts) == (True, [])
    net = fit(make_net(mlp, HeldInStopping(patience=9), StopAfter(25), kind=RecordsInterrupts), mnist)
    assert (net.heldin_.decision.stop, interrupts) == (False, [True])
    assert net.heldin_.sentence.startswith("not stopped after 2 measurements")


@pytest.mark.parametrize("every", [None, 4])
def test_values_are_in_the_history(every, mlp, mnist, values_of):
    net = fit(make_net(mlp, HeldInStopping(every=every, patience=100), max_epochs=3), mnist)
    name = "heldin/gradient_disparity"
    if every is None:
        assert net.history[:, name] == values_of(net)
    else:
        recorded = [batch[name] for row in net.history for batch in row["batches"] if name in batch]
        assert recorded == values_of(net)
        assert net.history[-1, name] == values_of(net)[-1]
    json.dumps(net.history.to_list())


def test_a_checkpoint_can_monitor_the_signal(mlp, mnist, tmp_path, values_of):
    def lowest(net):
        values = net.history[:, "heldin/gradient_disparity"]
        return values[-1] == min(values)

    saving = Checkpoint(monitor=lowest, dirname=tmp_path)
    net = fit(make_net(mlp, HeldInStopping(), saving, max_epochs=4), mnist)
    values = values_of(net)
    assert net.history[:, "event_cp"] == [value == min(values[: i + 1]) for i, value in enumerate(values)]


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_sentence_is_printed_once_unless_the_net_is_not_verbose(verbose, mlp, mnist, capsys):
    net = fit(make_net(mlp, HeldInStopping(patience=1), verbose=verbose), mnist)
    assert capsys.readouterr().out.count(net.heldin_.sentence) == verbose


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_the_same(program, kill_program, tmp_path):
    run, folder = program("skorch_run"), tmp_path / "killed"
    folder.mkdir()
    expected = run.summary_of(run.train(tmp_path / "whole", HeldInStopping(patience=2)))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    kill_program("skorch_run", folder, 3)
    assert run.summary_of(run.train(folder, HeldInStopping(patience=2))) == expected


def test_a_resumed_training_stops_at_once_unless_patience_is_raised(program, tmp_path, values_of):
    run = program("skorch_run")
    first = run.train(tmp_path, HeldInStopping(patience=1))
    again = run.train(tmp_path, HeldInStopping(patience=1))
    assert again.heldin_.decision == first.heldin_.decision
    assert len(again.history) == len(first.history)
    longer = run.train(tmp_path, HeldInStopping(patience=3))
    assert values_of(longer)[: len(first.history)] == values_of(first)
    assert longer.heldin_.decision.epoch == len(longer.history) - 1 > len(first.history)


def test_an_unpickled_net_knows_its_decision_and_continues(mlp, mnist, same_state, values_of):
    net = fit(make_net(mlp, HeldInStopping(patience=1, keep="lowest")), mnist)
    loaded = pickle.loads(pickle.dumps(net))
    assert loaded.heldin_ is dict(loaded.callbacks_)["HeldInStopping"]
    assert (loaded.heldin_.reason, loaded.heldin_.sentence) == (net.heldin_.reason, net.heldin_.sentence)
    assert same_state(loaded.heldin_.state_dict(), net.heldin_.state_dict())
    loaded.partial_fit(*mnist.tensors)
    assert len(loaded.history) == len(net.history)
    loaded.set_params(callbacks__HeldInStopping__patience=3)
    loaded.partial_fit(*mnist.tensors)
    assert len(loaded.history) > len(net.history)
    assert values_of(loaded)[: len(net.history)] == values_of(net)
    fit(loaded, mnist)  # starts again
    assert loaded.heldin_.stopper.history[0].epoch == 0
    assert len(values_of(loaded)) == len(loaded.history)


def test_a_net_pickled_during_training_continues(mlp, mnist, tmp_path, values_of):
    saving = Checkpoint(monitor=None, dirname=tmp_path, f_pickle="net.pkl", f_params=None, f_optimizer=None)
    net = fit(make_net(mlp, HeldInStopping(), saving, max_epochs=2), mnist)
    loaded = pickle.loads((tmp_path / "net.pkl").read_bytes())
    assert values_of(loaded) == values_of(net)
    loaded.partial_fit(*mnist.tensors, epochs=1)
    assert len(values_of(loaded)) == len(loaded.history) == 3
    assert [name for name, _ in loaded.callbacks_].count("heldin_stop") == 0


def test_partial_fit_continues_and_fit_starts_again(mlp, mnist, values_of):
    net = make_net(mlp, HeldInStopping(patience=9))
    for epochs in (2, 3):
        net.partial_fit(*mnist.tensors, epochs=epochs)
    assert [reading.epoch for reading in net.heldin_.stopper.history] == [0, 1, 2, 3, 4]
    fit(net.set_params(max_epochs=1), mnist)
    assert len(values_of(net)) == 1


def test_a_grid_search_over_patience(make_mlp, mnist, values_of):
    module = make_mlp()
    stopping = HeldInStopping()
    net = make_net(module, stopping, max_epochs=4)
    assert set(clone(stopping).get_params()) == set(stopping.get_params()) >= {"signal", "patience", "every", "keep"}
    search = GridSearchCV(net, {"callbacks__HeldInStopping__patience": [1, 4]}, cv=2, refit=True, error_score="raise")
    search.fit(*(tensor.numpy() for tensor in mnist.tensors))
    assert search.best_estimator_.heldin_.patience == search.best_params_["callbacks__HeldInStopping__patience"]
    assert len(values_of(search.best_estimator_)) == len(search.best_estimator_.history)


def test_a_callback_with_a_preset_can_be_cloned_and_changed():
    cloned = clone(HeldInStopping(preset="paper"))
    assert cloned.preset == "paper"
    assert cloned._method.rule == NthRise(5)
    cloned.set_params(patience=3)
    with pytest.raises(ArgumentError, match="`preset = 'paper'` and `patience`"):
        cloned.bind(nn.Linear(2, 2))
    cloned.set_params(preset=None)
    cloned.bind(nn.Linear(2, 2), sample_losses=lambda model, batch: model(batch[0]).sum(1))
    assert cloned.stopper.rule.patience == 3


def batch_loss(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def test_what_cannot_be_measured_is_refused_before_the_first_step(mlp, mnist, same_state):
    before = {name: value.clone() for name, value in mlp.state_dict().items()}
    net = make_net(mlp, HeldInStopping(batch_loss=batch_loss, warmup=10))
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        fit(net, mnist)
    assert same_state(before, mlp.state_dict())


def test_a_loss_of_whole_batches_is_measured(make_mlp, mnist, values_of):
    values = []
    for losses in ({"batch_loss": batch_loss}, {}):
        stopping = HeldInStopping(signal=GradientDisparity(rescale="mean"), **losses)
        values.append(values_of(fit(make_net(make_mlp(), stopping, max_epochs=2), mnist)))
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-5)
