"""skorch: the callback stops a net, and leaves no trace on the training."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, GradientNormClipping, LRScheduler
from skorch.hf import AccelerateMixin
from torch import nn

from heldin.errors import LossError, MissingExtraError
from heldin.integrations.skorch import HeldInStopping

NUM_BATCHES = 10  # of an epoch


def make(module, *callbacks, kind=NeuralNetClassifier, **options):
    fixed = {"criterion": nn.CrossEntropyLoss, "optimizer__momentum": 0.5, "lr": 0.1, "batch_size": 30, "verbose": 0}
    shuffled = {"train_split": None, "iterator_train__shuffle": True, "max_epochs": 20, "classes": list(range(10))}
    return kind(module, callbacks=[*callbacks], **fixed | shuffled | options)


def fit(net, dataset, **options):
    torch.manual_seed(5)
    return net.fit(*dataset.tensors, **options)


def num_steps(net):
    return sum(len(row["batches"]) for row in net.history)


class Steps(Callback):
    """Ends a plain training after so many steps, as one does in skorch."""

    def __init__(self, limit):
        self.limit = limit

    def on_batch_end(self, net, training=False, **kwargs):
        if num_steps(net) == self.limit:
            raise KeyboardInterrupt


class Epochs(Callback):
    """The weights after each epoch."""

    def initialize(self):
        self.states_ = []
        return self

    def on_epoch_end(self, net, **kwargs):
        self.states_.append({name: value.clone() for name, value in net.module_.state_dict().items()})


def test_scripted_values_stop_where_the_table_says(scripted, mlp, mnist):
    stopping = HeldInStopping(**scripted.arguments)
    epochs = -(-scripted.budget // NUM_BATCHES) if scripted.counts_steps else scripted.budget
    net = fit(make(mlp, stopping, max_epochs=epochs), mnist)
    scripted.check(stopping, num_steps(net) if scripted.counts_steps else len(net.history))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]},
        {"every": 7},
    ],
    ids=["plain", "fixed, three needs", "steps"],
)
def test_training_with_and_without_it_is_the_same(arguments, mlp, mnist, same, program):
    stopping = HeldInStopping(patience=2, **arguments)
    net = fit(make(mlp, GradientNormClipping(0.5), stopping), mnist)
    after = torch.rand(1)
    assert stopping.decision.stop
    assert len(net.history) < 20
    limit = [Steps(num_steps(net))] if "every" in arguments else []
    other = program("mnist_mlp").mlp()
    plain = fit(make(other, GradientNormClipping(0.5), *limit, max_epochs=len(net.history)), mnist)
    assert num_steps(plain) == num_steps(net)
    assert same(net.module_.state_dict(), plain.module_.state_dict())
    assert same(net.optimizer_.state_dict(), plain.optimizer_.state_dict())
    assert torch.equal(after, torch.rand(1))


class Accelerated(AccelerateMixin, NeuralNetClassifier):
    """With accumulation and mixed precision, as skorch has them."""


def test_accumulated_steps_in_mixed_precision_are_counted_as_they_are_taken(mlp, mnist, same, program):
    from accelerate import Accelerator

    nets = []
    for module, callbacks in ((mlp, [HeldInStopping(every=2)]), (program("mnist_mlp").mlp(), [])):
        accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
        nets.append(fit(make(module, *callbacks, kind=Accelerated, accelerator=accelerator, max_epochs=2), mnist))
    assert [reading.epoch for reading in nets[0].heldin_.stopper.history] == [1, 3, 5, 7, 9]  # of 20 batches
    assert same(nets[0].module_.state_dict(), nets[1].module_.state_dict())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo, looking at one
def test_a_compiled_net_is_measured_as_any_other(mlp, mnist, same, program):
    results = []
    for options in ({}, {"compile": True, "compile__backend": "eager"}):
        net = fit(make(program("mnist_mlp").mlp(), HeldInStopping(), max_epochs=2, **options), mnist)
        results.append((net.heldin_.stopper.history, [*net.module_.state_dict().values()]))
    assert results[0][0] == results[1][0]
    assert same(results[0][1], results[1][1])
    assert net.criterion_.reduction == "mean"


class Probabilities(nn.Sequential):
    """As skorch's classifier expects them for its default criterion, NLLLoss."""

    def forward(self, x, scale=1.0):
        return torch.softmax(super().forward(x) * scale, dim=1)


class Penalised(NeuralNetClassifier):
    def get_loss(self, y_pred, y_true, **kwargs):
        return super().get_loss(y_pred, y_true, **kwargs) + 0.01 * self.module_[0].weight.square().sum()


def values_of(net):
    return [reading.values["gradient_disparity"] for reading in net.heldin_.stopper.history]


def test_the_nets_own_loss_is_the_loss_one_would_give(mnist, program):
    def nll(module, batch):
        return -torch.log(module(batch[0], scale=2.0)[range(len(batch[1])), batch[1]] + torch.finfo().eps)

    values = []
    for arguments in ({}, {"sample_losses": nll}):
        module = Probabilities(*program("mnist_mlp").mlp())
        net = fit(make(module, HeldInStopping(**arguments), criterion=nn.NLLLoss, max_epochs=2), mnist, scale=2.0)
        values.append(values_of(net))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_a_penalty_is_part_of_the_loss(mnist, program):
    def penalised(module, batch):
        losses = nn.functional.cross_entropy(module(batch[0]), batch[1], reduction="none")
        return losses + 0.01 * module[0].weight.square().sum()

    values = []
    for arguments in ({}, {"sample_losses": penalised}, {"loss_fn": nn.CrossEntropyLoss()}):
        net = make(program("mnist_mlp").mlp(), HeldInStopping(**arguments), kind=Penalised, max_epochs=2)
        values.append(values_of(fit(net, mnist)))
    assert values[0] == values[1] != values[2]


def test_a_criterion_that_cannot_be_asked_for_single_samples_is_refused_and_a_loss_given_helps(mlp, mnist):
    class Averaged(nn.Module):
        def forward(self, scores, y):
            return nn.functional.cross_entropy(scores, y)

    with pytest.raises(LossError, match="sample_losses"):
        fit(make(mlp, HeldInStopping(), criterion=Averaged, max_epochs=1), mnist)
    net = make(mlp, HeldInStopping(loss_fn=nn.CrossEntropyLoss()), criterion=Averaged, max_epochs=1)
    assert len(values_of(fit(net, mnist))) == 1


def test_inputs_by_name_and_a_validation_split_are_left_to_the_net(mnist):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(784, 1)

        def forward(self, pixels):
            return self.layer(pixels)

    x, y = mnist.tensors
    net = NeuralNet(Named, nn.MSELoss, batch_size=30, max_epochs=2, verbose=0, callbacks=[HeldInStopping()])
    net.fit({"pixels": x.numpy()}, y.float().unsqueeze(1).numpy(), epochs=2)
    assert len(values_of(net)) == 2
    assert "valid_loss" in net.history[-1]


def test_every_callback_has_its_turn_before_the_net_is_stopped(mlp, mnist):
    stopping, later = HeldInStopping(patience=1), Epochs()
    net = fit(make(mlp, stopping, LRScheduler("StepLR", step_size=5), later), mnist)
    assert len(later.states_) == len(net.history) == stopping.decision.epoch + 1
    assert all("dur" in row for row in net.history)
    assert [name for name, _ in net.callbacks_].count("heldin_last") == 0


@pytest.mark.parametrize("patiences", [(1, 9), (9, 1)])
def test_of_two_callbacks_either_stops(patiences, mlp, mnist):
    both = [HeldInStopping(patience=patience) for patience in patiences]
    net = fit(make(mlp, *both), mnist)
    assert sorted(stopping.decision.stop for stopping in both) == [False, True]
    assert len(net.history) < 20
    assert [name for name, _ in net.callbacks_].count("heldin_last") == 0


def test_no_interrupt_is_faked_and_a_real_one_is_none_of_ours(mlp, mnist):
    class Watching(NeuralNetClassifier):
        def fit_loop(self, *args, **kwargs):
            try:
                return super().fit_loop(*args, **kwargs)
            except KeyboardInterrupt:
                interrupts.append(True)
                raise

    interrupts = []
    net = fit(make(mlp, HeldInStopping(patience=1), kind=Watching), mnist)
    assert (net.heldin_.decision.stop, interrupts) == (True, [])
    net = fit(make(mlp, HeldInStopping(patience=9), Steps(25), kind=Watching), mnist)
    assert (net.heldin_.decision.stop, interrupts) == (False, [True])
    assert net.heldin_.sentence.startswith("not stopped after 2 measurements")


@pytest.mark.parametrize(("every", "rows"), [(None, [0, 1, 2]), (4, [0, 1, 2])])
def test_values_are_in_the_history(every, rows, mlp, mnist):
    net = fit(make(mlp, HeldInStopping(every=every, patience=100), max_epochs=3), mnist)
    name = "heldin/gradient_disparity"
    if every is None:
        assert net.history[:, name] == values_of(net)
    else:
        recorded = [batch[name] for row in net.history for batch in row["batches"] if name in batch]
        assert recorded == values_of(net)
        assert net.history[-1, name] == values_of(net)[-1]
    json.dumps(net.history.to_list())


def test_a_checkpoint_can_be_chosen_by_the_signal(mlp, mnist, tmp_path):
    def lowest(net):
        values = net.history[:, "heldin/gradient_disparity"]
        return values[-1] == min(values)

    saving = Checkpoint(monitor=lowest, dirname=tmp_path)
    net = fit(make(mlp, HeldInStopping(), saving, max_epochs=4), mnist)
    values = values_of(net)
    assert net.history[:, "event_cp"] == [value == min(values[: i + 1]) for i, value in enumerate(values)]


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_sentence_is_printed_once_unless_the_net_is_silent(verbose, mlp, mnist, capsys):
    net = fit(make(mlp, HeldInStopping(patience=1), verbose=verbose), mnist)
    assert capsys.readouterr().out.count(net.heldin_.sentence) == verbose


@pytest.mark.parametrize("max_epochs", [3, 20], ids=["budget ends", "stopped"])
def test_training_ends_with_the_weights_asked_for(max_epochs, mlp, mnist, same):
    epochs, stopping = Epochs(), HeldInStopping(keep="before_rise", patience=2)
    net = fit(make(mlp, epochs, stopping, max_epochs=max_epochs), mnist)
    assert same(net.module_.state_dict(), epochs.states_[stopping.decision.before])
    assert stopping.decision.stop == (max_epochs == 20)


def test_killed_and_resumed_it_decides_the_same(program, run_program, tmp_path):
    run, (straight, broken) = program("skorch_run"), (tmp_path / "straight", tmp_path / "broken")
    broken.mkdir()
    expected = run.outcome(run.trained(straight, HeldInStopping(patience=2)))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    printed, code = run_program("skorch_run", broken, 3)
    assert code == -9, printed
    assert run.outcome(run.trained(broken, HeldInStopping(patience=2))) == expected


def test_patience_raised_on_resuming_holds_and_the_same_patience_stops_at_once(program, tmp_path):
    run = program("skorch_run")
    first = run.trained(tmp_path, HeldInStopping(patience=1))
    again = run.trained(tmp_path, HeldInStopping(patience=1))
    assert again.heldin_.decision == first.heldin_.decision
    assert len(again.history) == len(first.history)
    longer = run.trained(tmp_path, HeldInStopping(patience=3))
    assert values_of(longer)[: len(first.history)] == values_of(first)
    assert longer.heldin_.decision.epoch == len(longer.history) - 1 > len(first.history)


def test_a_pickled_net_can_be_asked_and_goes_on(mlp, mnist, same):
    net = fit(make(mlp, HeldInStopping(patience=1, keep="lowest")), mnist)
    loaded = pickle.loads(pickle.dumps(net))
    assert loaded.heldin_ is dict(loaded.callbacks_)["HeldInStopping"]
    assert (loaded.heldin_.reason, loaded.heldin_.sentence) == (net.heldin_.reason, net.heldin_.sentence)
    assert same(loaded.heldin_.state_dict(), net.heldin_.state_dict())
    loaded.partial_fit(*mnist.tensors)
    assert len(loaded.history) == len(net.history)
    loaded.set_params(callbacks__HeldInStopping__patience=3)
    loaded.partial_fit(*mnist.tensors)
    assert len(loaded.history) > len(net.history)
    assert values_of(loaded)[: len(net.history)] == values_of(net)
    fit(loaded, mnist)  # begins anew
    assert loaded.heldin_.stopper.history[0].epoch == 0
    assert len(values_of(loaded)) == len(loaded.history)


def test_a_pickle_written_while_it_trains_goes_on(mlp, mnist, tmp_path):
    saving = Checkpoint(monitor=None, dirname=tmp_path, f_pickle="net.pkl", f_params=None, f_optimizer=None)
    net = fit(make(mlp, HeldInStopping(), saving, max_epochs=2), mnist)
    loaded = pickle.loads((tmp_path / "net.pkl").read_bytes())
    assert values_of(loaded) == values_of(net)
    loaded.partial_fit(*mnist.tensors, epochs=1)
    assert len(values_of(loaded)) == len(loaded.history) == 3
    assert [name for name, _ in loaded.callbacks_].count("heldin_last") == 0


def test_partial_fit_goes_on_and_fit_begins_anew(mlp, mnist):
    net = make(mlp, HeldInStopping(patience=9))
    for epochs in (2, 3):
        net.partial_fit(*mnist.tensors, epochs=epochs)
    assert [reading.epoch for reading in net.heldin_.stopper.history] == [0, 1, 2, 3, 4]
    fit(net.set_params(max_epochs=1), mnist)
    assert len(values_of(net)) == 1


def test_patience_can_be_searched_for(program, mnist):
    module = program("mnist_mlp").mlp()
    stopping = HeldInStopping()
    net = make(module, stopping, max_epochs=4)
    assert set(clone(stopping).get_params()) == set(stopping.get_params()) >= {"signal", "patience", "every", "keep"}
    search = GridSearchCV(net, {"callbacks__HeldInStopping__patience": [1, 4]}, cv=2, refit=True, error_score="raise")
    search.fit(*(tensor.numpy() for tensor in mnist.tensors))
    assert search.best_estimator_.heldin_.patience == search.best_params_["callbacks__HeldInStopping__patience"]
    assert len(values_of(search.best_estimator_)) == len(search.best_estimator_.history)


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("skorch_digits")
    assert num_added == 4
    marked()
    assert "gradient disparity rose for the 5th time" in (printed := capsys.readouterr().out)
    assert "trained for 40 epochs" not in printed
    plain()
    assert "trained for 40 epochs" in capsys.readouterr().out


def test_without_skorch_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.skorch", raising=False)
    monkeypatch.setitem(sys.modules, "skorch.callbacks", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[skorch\]"):
        import heldin.integrations.skorch  # noqa: F401
