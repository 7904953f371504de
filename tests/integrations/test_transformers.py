"""Hugging Face's Trainer: the callback stops it, and leaves no trace on the training."""

from __future__ import annotations

import json
import shutil
import sys

import peft
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback

import heldin
from heldin.errors import ArgumentError, HeldinWarning, LossError, MissingExtraError
from heldin.integrations._huggingface import OutputLosses
from heldin.integrations.transformers import HeldInStopping

TINY = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def run(program):
    return program("transformers_run")


@pytest.fixture
def digits(run, mlp):
    return run.Digits(mlp)


@pytest.fixture
def data(run, mnist):
    return run.Named(mnist)


class Epochs(TrainerCallback):
    """The weights after each epoch."""

    def __init__(self):
        self.states = []

    def on_epoch_end(self, args, state, control, model, **kwargs):
        self.states.append({name: value.clone() for name, value in model.state_dict().items()})


class Reporter(TrainerCallback):
    """As those of TensorBoard, W&B and MLflow: hears what is logged."""

    def __init__(self):
        self.heard = []

    def on_log(self, args, state, control, logs, **kwargs):
        self.heard.append((state.global_step, logs))


def test_scripted_values_stop_where_the_table_says(scripted, run, digits, data, tmp_path):
    limit = {"max_steps" if scripted.counts_steps else "num_train_epochs": scripted.budget}
    trainer = run.a_trainer(tmp_path, digits, data, **limit)
    stopping = HeldInStopping(**scripted.arguments).attach(trainer)
    trainer.train()
    scripted.check(stopping, trainer.state.global_step if scripted.counts_steps else trainer.state.epoch)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {"dataloader_drop_last": True}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]}, {}),
        ({"every": 7}, {}),
        ({"every": 2}, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1}),
        ({}, {"bf16": True, "optim": "adamw_torch", "learning_rate": 0.01}),
        ({}, {"torch_compile": True, "torch_compile_backend": "eager"}),
    ],
    ids=["plain", "fixed, per-sample gradients", "steps", "accumulated and clipped", "mixed precision", "compiled"],
)
def test_training_with_and_without_it_is_the_same(arguments, options, run, digits, data, same, program, tmp_path):
    trainer = run.a_trainer(tmp_path, digits, data, **options)
    stopping = HeldInStopping(patience=2, **arguments).attach(trainer)
    trainer.train()
    after = torch.rand(1)
    assert stopping.decision.stop
    assert trainer.state.epoch < 20
    other = run.Digits(program("mnist_mlp").mlp())
    plain = run.a_trainer(tmp_path, other, data, **options, callbacks=[Stop(trainer.state.global_step)])
    plain.train()
    assert plain.state.global_step == trainer.state.global_step
    assert same(digits.state_dict(), other.state_dict())
    assert same(trainer.optimizer.state_dict(), plain.optimizer.state_dict())
    logs = [row for row in trainer.state.log_history if not any(name.startswith("heldin/") for name in row)]
    assert logs[:-1] == plain.state.log_history[:-1]  # the last has the time it took
    assert torch.equal(after, torch.rand(1))


class Stop(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step
        return control


def test_mixed_precision_is_measured_in_full_precision(run, data, program, tmp_path):
    histories = []
    for bf16 in (False, True):
        trainer = run.a_trainer(tmp_path, run.Digits(program("mnist_mlp").mlp()), data, bf16=bf16, max_steps=1)
        stopping = HeldInStopping(every=1).attach(trainer)
        trainer.args.learning_rate = 0.0
        trainer.train()
        histories.append(stopping.stopper.history)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("signal", ["gradient_disparity", "gsnr"])
@pytest.mark.filterwarnings("ignore:Gradients of single samples are taken one")  # transformers look at values
def test_a_language_model_with_adapters_is_probed_in_its_adapters_alone(signal, run, tmp_path, same, padded):
    texts = [{name: value[0] for name, value in padded(1, 9).items()} for _ in range(40)]
    torch.manual_seed(3)
    base = LlamaForCausalLM(LlamaConfig(**TINY))
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)
    model = peft.get_peft_model(base, settings)
    frozen = {name: value.clone() for name, value in model.state_dict().items() if "lora_" not in name}
    options = {"per_device_train_batch_size": 8, "num_train_epochs": 3, "learning_rate": 0.5}
    trainer = run.a_trainer(tmp_path, model, texts, **options)
    stopping = HeldInStopping(signal=signal, keep="lowest").attach(trainer)
    trainer.train()
    assert len(stopping.stopper.history) == 3
    assert all(reading.values[signal] > 0 for reading in stopping.stopper.history)
    assert same(frozen, {name: value for name, value in model.state_dict().items() if "lora_" not in name})
    losses = OutputLosses()
    losses.settle(model, padded(4, 9))
    rows = heldin.Probe(model, None, sample_losses=losses).gradients([padded(4, 9)], "none").matrix()
    assert rows.shape[1] == model.get_nb_trainable_parameters()[0] < 0.2 * base.num_parameters()


def test_the_models_own_loss_is_the_loss_one_would_give(run, data, program, tmp_path):
    def losses(model, batch):
        return cross_entropy(model(**batch)["logits"], batch["labels"], reduction="none")

    class Forgiving(run.Digits):
        def forward(self, x, labels=None):
            logits = self.net(x)
            return {"logits": logits} if labels is None else {"loss": cross_entropy(logits, labels), "logits": logits}

    histories = []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss()}, {"sample_losses": losses}):
        trainer = run.a_trainer(tmp_path, Forgiving(program("mnist_mlp").mlp()), data, num_train_epochs=2)
        stopping = HeldInStopping(**arguments).attach(trainer)
        trainer.train()
        histories.append([reading.values["gradient_disparity"] for reading in stopping.stopper.history])
    assert histories[0] == histories[1] == histories[2]
    assert len(histories[0]) == 2


def test_a_loss_with_something_added_is_refused_before_training_begins(run, mlp, data, tmp_path):
    class Penalised(run.Digits):
        def forward(self, x, labels=None):
            found = super().forward(x, labels)
            return {**found, "loss": found["loss"] + 0.01 * sum(p.square().sum() for p in self.parameters())}

    trainer = run.a_trainer(tmp_path, Penalised(mlp), data)
    HeldInStopping().attach(trainer)
    with pytest.raises(LossError, match="sample_losses=f"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_loss_function_of_the_trainers_own_is_refused(run, digits, data, tmp_path):
    trainer = run.a_trainer(tmp_path, digits, data)
    trainer.compute_loss_func = lambda outputs, labels, num_items_in_batch: cross_entropy(outputs["logits"], labels)
    HeldInStopping().attach(trainer)
    with pytest.raises(ArgumentError, match="compute_loss_func"):
        trainer.train()


@pytest.mark.parametrize(("every", "steps"), [(None, [10, 20, 30]), (4, [4, 8, 12, 16, 20, 24, 28])])
def test_values_reach_the_reporters_beside_the_trainers_own(every, steps, run, digits, data, tmp_path):
    reporter = Reporter()
    trainer = run.a_trainer(tmp_path, digits, data, num_train_epochs=3, logging_steps=4, callbacks=[reporter])
    stopping = HeldInStopping(every=every, patience=100).attach(trainer)
    trainer.train()
    values = [reading.values["gradient_disparity"] for reading in stopping.stopper.history]
    ours = [(step, logs) for step, logs in reporter.heard if "heldin/gradient_disparity" in logs]
    assert [step for step, _ in ours] == steps
    assert [logs["heldin/gradient_disparity"] for _, logs in ours] == values
    assert [step for step, logs in reporter.heard if "loss" in logs] == [4, 8, 12, 16, 20, 24, 28]


def test_as_a_callback_alone_the_values_are_in_the_log_history(run, digits, data, tmp_path):
    stopping = HeldInStopping()
    trainer = run.a_trainer(tmp_path, digits, data, num_train_epochs=2, callbacks=[stopping])
    trainer.train()
    rows = [row for row in trainer.state.log_history if "heldin/gradient_disparity" in row]
    assert [row["step"] for row in rows] == [10, 20]
    assert trainer.callback_handler.callbacks.count(stopping.attach(trainer)) == 1


def test_the_sentence_is_printed_once(run, digits, data, tmp_path, capsys):
    trainer = run.a_trainer(tmp_path, digits, data)
    stopping = HeldInStopping(patience=1).attach(trainer)
    trainer.train()
    assert capsys.readouterr().out.splitlines().count(stopping.sentence) == 1


@pytest.mark.parametrize("max_epochs", [3, 20], ids=["budget ends", "stopped"])
def test_training_ends_with_the_weights_asked_for(max_epochs, run, digits, data, same, tmp_path):
    epochs = Epochs()
    trainer = run.a_trainer(tmp_path, digits, data, num_train_epochs=max_epochs, callbacks=[epochs])
    stopping = HeldInStopping(keep="before_rise", patience=2).attach(trainer)
    trainer.train()
    assert same(digits.state_dict(), epochs.states[stopping.decision.before])
    assert stopping.decision.stop == (max_epochs == 20)


def test_an_epoch_cut_short_is_not_measured_and_training_again_begins_anew(run, digits, data, tmp_path):
    trainer = run.a_trainer(tmp_path, digits, data, max_steps=25)
    stopping = HeldInStopping(patience=100).attach(trainer)
    for _ in range(2):
        trainer.train()
        assert [reading.epoch for reading in stopping.stopper.history] == [0, 1]


def test_killed_and_resumed_it_decides_the_same(run, run_program, tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    stopping = HeldInStopping(patience=2, keep="before_rise")
    expected = run.outcome(stopping, run.trained(straight, stopping))
    assert expected["decision"]["stop"]
    assert expected["steps"] > 40
    printed, code = run_program("transformers_run", broken, 34)
    assert code == -9, printed
    assert (broken / "checkpoint-30" / "heldin.pt").exists()
    again = HeldInStopping(patience=2, keep="before_rise")
    resumed = run.outcome(again, run.trained(broken, again, resume=True))
    assert json.dumps(resumed) == json.dumps(expected)


def test_patience_raised_on_resuming_holds_and_the_same_patience_stops_at_once(run, tmp_path, same):
    first = HeldInStopping(patience=1)
    trainer = run.trained(tmp_path, first)
    shutil.copytree(tmp_path, elsewhere := tmp_path.with_name(tmp_path.name + "-elsewhere"))
    again = HeldInStopping(patience=1)
    stopped = run.trained(elsewhere, again, resume=True)
    assert again.decision == first.decision
    assert again.stopper.history == first.stopper.history
    assert same([*stopped.model.parameters()], [*trainer.model.parameters()])  # after one step, an empty one
    patient = HeldInStopping(patience=3)
    longer = run.trained(tmp_path, patient, resume=True)
    assert patient.stopper.history[: len(first.stopper.history)] == first.stopper.history
    assert patient.decision.epoch == longer.state.epoch - 1 > first.decision.epoch


def test_resumed_in_the_middle_of_an_epoch_steps_are_counted_on(run, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 13}
    first = HeldInStopping(every=5, patience=100)
    run.trained(tmp_path, first, **options, max_steps=26)
    shutil.rmtree(tmp_path / "checkpoint-26")
    again = HeldInStopping(every=5, patience=100)
    run.trained(tmp_path, again, resume=True, **options, max_steps=26)
    assert again.stopper.history == first.stopper.history
    assert [reading.epoch for reading in again.stopper.history] == [4, 9, 14, 19, 24]


def test_a_checkpoint_without_the_state_is_said_and_one_elsewhere_can_be_loaded(run, tmp_path):
    first = HeldInStopping(patience=100)
    run.trained(tmp_path, first, num_train_epochs=2)
    shutil.move(tmp_path / "checkpoint-20" / "heldin.pt", tmp_path / "state.pt")
    anew = HeldInStopping(patience=100)
    with pytest.warns(HeldinWarning, match="measuring begins anew"):
        run.trained(tmp_path, anew, resume=True, num_train_epochs=3)
    assert len(anew.stopper.history) == 1
    shutil.rmtree(tmp_path / "checkpoint-30")
    told = HeldInStopping(patience=100)
    told.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    run.trained(tmp_path, told, resume=True, num_train_epochs=3)
    assert len(told.stopper.history) == 3


def test_two_ranks_decide_alike(ranks):
    one, other = ranks("transformers_run")
    assert one == other
    assert one["decision"]["stop"]
    assert one["logged"] == one["values"]


def test_a_stream_is_measured_too(run, digits, data, tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(data)

    trainer = run.a_trainer(tmp_path, digits, Stream(), max_steps=12)
    stopping = HeldInStopping(every=4).attach(trainer)
    trainer.train()
    assert [reading.epoch for reading in stopping.stopper.history] == [3, 7, 11]


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("transformers_digits")
    assert num_added == 2
    marked()
    assert "stopped at epoch" in (printed := capsys.readouterr().out)
    assert "trained for 40 epochs" not in printed
    plain()
    assert "trained for 40 epochs" in capsys.readouterr().out


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.transformers", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[huggingface\]"):
        import heldin.integrations.transformers  # noqa: F401


def test_what_is_no_trainer_is_refused(digits):
    with pytest.raises(ArgumentError, match=f"Found a {type(digits).__name__}. Pass the transformers.Trainer"):
        HeldInStopping().attach(digits)


def test_a_trainer_of_ones_own_is_a_trainer(run, digits, data, tmp_path):
    class Own(Trainer):
        def log(self, logs, *arguments):
            super().log({**logs, "mine": 1.0}, *arguments)

    trainer = run.a_trainer(tmp_path, digits, data, num_train_epochs=1, subclass=Own)
    HeldInStopping().attach(trainer)
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "heldin/gradient_disparity" in row]
    assert row["mine"] == 1.0
