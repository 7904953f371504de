"""Hugging Face's Trainer: the callback stops it, and does not change the training."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import peft
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
)

import heldin
import heldin.signals.reference
from heldin.errors import ArgumentError, HeldinWarning, LossError, UnmeasurableError
from heldin.integrations.transformers import HeldInStopping, LogitLosses
from heldin.probing.output_losses import OutputLosses

OF_TRAINING = {"probes": "training", "signal": "gradient_disparity[rescale=std_detached]"}
TINY = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def run(program):
    return program("transformers_run")


@pytest.fixture
def data(run, mnist):
    return run.DictDataset(mnist)


@pytest.fixture
def make_trainer(run, mlp, data, tmp_path):
    def make(model=None, dataset=None, **options):
        return run.make_trainer(tmp_path, model or run.Digits(mlp), dataset or data, **options)

    return make


class EpochWeights(TrainerCallback):
    def __init__(self):
        self.weights = []

    def on_epoch_end(self, args, state, control, model, **kwargs):
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})


class StopAfter(TrainerCallback):
    """Stops a plain training and keeps its learning rate schedule."""

    def __init__(self, epochs, steps):
        self.epochs, self.steps = epochs, steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.steps
        return control

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop = control.should_training_stop or round(state.epoch) >= self.epochs
        return control


class LogRecorder(TrainerCallback):
    """Records logs, as the callbacks of TensorBoard, W&B and MLflow do."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs, **kwargs):
        self.logs.append((state.global_step, logs))


@pytest.fixture
def train(run, make_mlp, data, tmp_path):
    def train(stopping=None, *, epochs=20, steps=None, **options):
        recorder = EpochWeights()
        if stopping is None:
            callbacks = [recorder, StopAfter(epochs, steps)]
        else:
            callbacks = [recorder]
            options |= {"num_train_epochs": epochs} if steps is None else {"max_steps": steps}
        trainer = run.make_trainer(tmp_path, run.Digits(make_mlp()), data, callbacks=callbacks, **options)
        if stopping is not None:
            stopping.attach(trainer)
        trainer.train()
        weights = trainer.model.state_dict()
        logs = [row for row in trainer.state.log_history if not any(name.startswith("heldin/") for name in row)]
        return SimpleNamespace(
            epochs=trainer.state.epoch,
            steps=trainer.state.global_step,
            state=[weights, trainer.optimizer.state_dict(), logs[:-1]],  # the last row has the duration
            weights=weights,
            epoch_weights=recorder.weights,
        )

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {"dataloader_drop_last": True}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]}, {}),
        ({"every": 7}, {}),
        ({"every": 2}, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1}),
        ({}, {"bf16": True, "optim": "adamw_torch", "learning_rate": 0.01}),
        ({}, {"torch_compile": True, "torch_compile_backend": "eager"}),
        (OF_TRAINING, {}),
        ({"every": 2, **OF_TRAINING}, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1}),
    ],
    ids=[
        "plain",
        "fixed, three signals",
        "steps",
        "accumulated and clipped",
        "mixed precision",
        "compiled",
        "gradients of training",
        "gradients of training, accumulated and clipped",
    ],
)
@pytest.mark.filterwarnings("ignore:No value at")  # the last step of an epoch may have one micro-batch
def test_measuring_does_not_change_training(arguments, options, check_same_training):
    check_same_training(HeldInStopping(patience=2, **arguments), **options)


def test_a_schedule_that_has_to_end_is_logged(check_same_training, caplog):
    check_same_training(HeldInStopping(patience=2), lr_scheduler_type="linear")
    (message,) = [record.getMessage() for record in caplog.records if record.name == "heldin"]
    assert "falls to 0 times the initial rate by step 200 (lr_scheduler_type='linear')" in message
    assert '"constant"' in message


def test_a_schedule_without_an_end_is_not_logged(train, caplog):
    train(HeldInStopping(), epochs=1, lr_scheduler_type="constant_with_warmup", warmup_steps=5)
    train(HeldInStopping(), epochs=1, lr_scheduler_type="inverse_sqrt", warmup_steps=5)
    assert [record for record in caplog.records if record.name == "heldin"] == []


def test_training_ends_with_the_kept_weights(check_kept_weights):
    check_kept_weights(HeldInStopping(keep="before_rise", patience=2))


@pytest.mark.slow
def test_two_ranks_agree(check_ranks_agree):
    result = check_ranks_agree("transformers_run")
    assert result["logged"] == result["values"]


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("transformers_digits")


MODELS = {
    "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2)),
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**TINY)),
    "masked": lambda: BertForMaskedLM(BertConfig(**TINY)),
    "tokens": lambda: BertForTokenClassification(BertConfig(**TINY, num_labels=20)),
    "sequence to sequence": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    ),
    "classes": lambda: BertForSequenceClassification(BertConfig(**TINY, num_labels=3)),
    "regression": lambda: BertForSequenceClassification(BertConfig(**TINY, num_labels=1)),
    "several labels": lambda: BertForSequenceClassification(BertConfig(**TINY, num_labels=3)),
}
LABELS = {  # by default the labels are the tokens
    "classes": lambda: torch.randint(3, (6,)),
    "regression": lambda: torch.randn(6),
    "several labels": lambda: torch.randint(2, (6, 3)).float(),
}


def split_into_samples(batch):
    return [{name: value[i : i + 1] for name, value in batch.items()} for i in range(6)]


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_sample_is_the_models_loss_for_it_alone(name, padded_texts):
    model = MODELS[name]().eval()  # without dropout, which would give other outputs each time
    batch = padded_texts(6, 9)
    if name in LABELS:
        batch["labels"] = LABELS[name]()
    losses = OutputLosses()
    alone = [model(**sample).loss for sample in split_into_samples(batch)]
    torch.testing.assert_close(losses.alone(model, batch), torch.stack(alone), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(losses(model, batch).mean(), model(**batch).loss)


def test_labels_are_smoothed_as_by_the_trainer(make_trainer, padded_texts):
    model, batch = MODELS["Llama"](), padded_texts(6, 9)
    trainer = make_trainer(model.eval(), label_smoothing_factor=0.2)
    losses = OutputLosses(label_smoothing=0.2)
    expected = torch.stack([trainer.compute_loss(model, sample) for sample in split_into_samples(batch)])
    assert torch.allclose(losses.alone(model, batch), expected, rtol=1e-5)
    assert torch.allclose(losses(model, batch).mean(), trainer.compute_loss(model, batch), rtol=1e-5)


def test_the_models_own_loss_gives_the_same_values_as_a_given_loss(run, make_trainer, make_mlp, values_of):
    def losses(model, batch):
        return cross_entropy(model(**batch)["logits"], batch["labels"], reduction="none")

    class OptionalLoss(run.Digits):
        def forward(self, x, labels=None):
            return super().forward(x, labels) if labels is not None else {"logits": self.net(x)}

    values = []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss()}, {"sample_losses": losses}):
        trainer = make_trainer(OptionalLoss(make_mlp()), num_train_epochs=2)
        stopping = HeldInStopping(**arguments).attach(trainer)
        trainer.train()
        values.append(values_of(stopping))
    assert values[0] == values[1] == values[2]
    assert len(values[0]) == 2


class CountingLoss(nn.CrossEntropyLoss):
    """A loss of logits whose classes come last, which counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("num_calls", torch.zeros(()))

    def forward(self, logits, labels):
        self.num_calls += 1
        return super().forward(logits.transpose(1, 2), labels)


@pytest.mark.parametrize("is_module", [True, False], ids=["module", "function"])
def test_a_given_loss_of_padded_texts_is_that_of_training_and_its_buffers_are_restored(is_module, padded_texts):
    model, module = MODELS["tokens"]().eval(), CountingLoss()
    texts = padded_texts(6, 9)
    texts["labels"][3] = -100  # a text without labels does not count
    loss_fn = module if is_module else lambda out, y: cross_entropy(out.transpose(1, 2), y, reduction="none")
    probe = heldin.Probe(model, None, sample_losses=LogitLosses(loss_fn), mode="eval")
    with probe.session():
        losses, alone = probe.losses(texts), probe.losses(texts, alone=True)
    torch.testing.assert_close(losses.mean(), model(**texts).loss)
    assert (len(losses), len(alone)) == (5, 6)
    expected = [model(**sample).loss for i, sample in enumerate(split_into_samples(texts)) if i != 3]
    torch.testing.assert_close(alone[[0, 1, 2, 4, 5]], torch.stack(expected))
    assert module.num_calls == 0


def penalty(model):
    """A penalty of the weights."""
    return 0.01 * sum(parameter.square().sum() for parameter in model.parameters())


def expected_values(make_trainer, make_model, values_of, **arguments):
    """The values measured on given losses."""
    trainer = make_trainer(make_model(), num_train_epochs=2)
    stopping = HeldInStopping(**arguments).attach(trainer)
    trainer.train()
    return values_of(stopping)


def class_losses(model, batch):
    return cross_entropy(model.net(batch["x"]), batch["labels"], reduction="none")


def test_a_penalty_of_the_model_is_left_out_with_a_notice(run, make_mlp, make_trainer, values_of):
    class Penalised(run.Digits):
        def forward(self, x, labels=None):
            found = super().forward(x, labels)
            return {**found, "loss": found["loss"] + penalty(self)}

    trainer = make_trainer(Penalised(make_mlp()), num_train_epochs=2)
    stopping = HeldInStopping().attach(trainer)
    with pytest.warns(HeldinWarning, match="the same for every batch"):
        trainer.train()
    expected = expected_values(make_trainer, lambda: Penalised(make_mlp()), values_of, sample_losses=class_losses)
    assert values_of(stopping) == pytest.approx(expected, rel=1e-4)


class Smoothed(Trainer):
    """The loss is not the one that the model returns."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        logits = model.net(inputs["x"])
        self.calls = [*getattr(self, "calls", []), 1]
        self.metrics["loss"].append(0.0)
        return 0.5 * cross_entropy(logits, labels, label_smoothing=0.3)

    metrics = None


class OverBatch(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs)["loss"].sqrt()


class Broken(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not self.state.global_step:
            raise RuntimeError("no step yet")
        return super().compute_loss(model, inputs)


@pytest.mark.parametrize("attached", [True, False])
def test_an_overridden_compute_loss_is_measured(attached, run, make_mlp, make_trainer, values_of):
    def losses(model, batch):
        return 0.5 * cross_entropy(model.net(batch["x"]), batch["labels"], reduction="none", label_smoothing=0.3)

    stopping = HeldInStopping()
    trainer = make_trainer(run.Digits(make_mlp()), num_train_epochs=2, subclass=Smoothed)
    trainer.metrics = {"loss": []}
    if attached:
        stopping.attach(trainer)
    else:
        trainer.add_callback(stopping)
    trainer.train()
    assert len(trainer.calls) == len(trainer.metrics["loss"]) == 20  # the steps of training, and no others
    trainer = make_trainer(run.Digits(make_mlp()), num_train_epochs=2, subclass=Smoothed)
    trainer.metrics = {"loss": []}
    expected = HeldInStopping(sample_losses=losses).attach(trainer)
    trainer.train()
    assert values_of(stopping) == pytest.approx(values_of(expected), rel=1e-4)


def test_a_compute_loss_of_the_same_value_before_training_is_not_taken_for_the_models(
    run, make_mlp, make_trainer, values_of
):
    class SameAtZero(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return cross_entropy(model(**inputs)["logits"], inputs["labels"], label_smoothing=0.3)

    def losses(model, batch):
        return cross_entropy(model(**batch)["logits"], batch["labels"], reduction="none", label_smoothing=0.3)

    values = []
    for arguments in ({}, {"sample_losses": losses}):
        model = run.Digits(make_mlp())
        head = [part for part in model.modules() if isinstance(part, nn.Linear)][-1]
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)  # every loss is log 10
        trainer = make_trainer(model, num_train_epochs=1, subclass=SameAtZero)
        stopping = HeldInStopping(**arguments).attach(trainer)
        trainer.train()
        values.append(values_of(stopping))
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_a_compute_loss_may_use_keys_that_the_model_does_not_take(run, data, make_mlp, make_trainer, values_of):
    class Weighted(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            weight = inputs.pop("weight")
            losses = cross_entropy(model(**inputs)["logits"], inputs["labels"], reduction="none")
            return (weight * losses).mean()

    def losses(model, batch):
        return batch["weight"] * class_losses(model, batch)

    samples = [{**data[i], "weight": float(i % 3 + 1)} for i in range(len(data))]
    values = []
    for arguments in ({}, {"sample_losses": losses}):
        options = {"num_train_epochs": 1, "remove_unused_columns": False, "subclass": Weighted}
        trainer = make_trainer(run.Digits(make_mlp()), samples, **options)
        stopping = HeldInStopping(**arguments).attach(trainer)
        trainer.train()
        values.append(values_of(stopping))
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_a_compute_loss_over_the_batch_is_measured_per_batch_with_a_notice(run, make_mlp, make_trainer, values_of):
    trainer = make_trainer(run.Digits(make_mlp()), num_train_epochs=2, subclass=OverBatch)
    stopping = HeldInStopping().attach(trainer)
    with pytest.warns(HeldinWarning, match="one number per batch. Gradient disparity is re-scaled by the mean loss"):
        trainer.train()
    trainer = make_trainer(run.Digits(make_mlp()), num_train_epochs=2, subclass=OverBatch)
    expected = HeldInStopping(
        signal=heldin.GradientDisparity(rescale="mean"), batch_loss=lambda model, batch: model(**batch)["loss"].sqrt()
    ).attach(trainer)
    trainer.train()
    assert values_of(stopping) == values_of(expected)


def test_a_signal_that_needs_losses_per_sample_is_refused_before_training(run, mlp, make_trainer):
    trainer = make_trainer(run.Digits(mlp), subclass=OverBatch)
    HeldInStopping(signal="gsnr", warmup=10).attach(trainer)
    with (
        pytest.warns(HeldinWarning, match="one number per batch"),
        pytest.raises(UnmeasurableError, match="The signal 'gsnr' cannot be measured here"),
    ):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_compute_loss_that_cannot_be_run_is_refused_with_both_losses(run, mlp, make_trainer):
    trainer = make_trainer(run.Digits(mlp), subclass=Broken)
    HeldInStopping().attach(trainer)
    with pytest.raises(LossError, match=r"compute_loss raises RuntimeError: no step yet, while the mean .* is 2\.\d"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_compute_loss_that_raises_a_type_error_is_run_once(run, mlp, make_trainer):
    runs = []

    class WrongType(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            runs.append(1)
            raise TypeError("of its own")

    trainer = make_trainer(run.Digits(mlp), subclass=WrongType)
    trainer.compute_loss_func = cross_entropy  # the number of items is counted
    HeldInStopping().attach(trainer)
    with pytest.raises(LossError, match="compute_loss raises TypeError: of its own"):
        trainer.train()
    assert len(runs) == 1


def test_a_compute_loss_func_is_measured(run, make_mlp, make_trainer, values_of):
    def loss_func(outputs, labels, num_items_in_batch):
        return cross_entropy(outputs["logits"], labels, reduction="sum") / num_items_in_batch

    class OptionalLoss(run.Digits):
        def forward(self, x, labels=None):
            return {"logits": self.net(x)}

    trainer = make_trainer(OptionalLoss(make_mlp()), num_train_epochs=2)
    trainer.compute_loss_func = loss_func
    stopping = HeldInStopping().attach(trainer)
    trainer.train()
    trainer = make_trainer(OptionalLoss(make_mlp()), num_train_epochs=2)
    trainer.compute_loss_func = loss_func
    expected = HeldInStopping(sample_losses=class_losses).attach(trainer)
    trainer.train()
    assert values_of(stopping) == pytest.approx(values_of(expected), rel=1e-4)


class WeightedTokens(Trainer):
    """A loss of tokens that is not the model's own."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(**inputs).logits
        scores, labels = logits[:, :-1].reshape(-1, 20), inputs["labels"][:, 1:].reshape(-1)
        return 0.5 * cross_entropy(scores, labels, label_smoothing=0.5)


def test_a_loss_of_flattened_tokens_is_folded(make_trainer, padded_texts, values_of):
    def losses(model, batch):
        labels = batch["labels"][:, 1:]
        scores = model(**batch).logits[:, :-1].transpose(1, 2)
        losses = cross_entropy(scores, labels, reduction="none", label_smoothing=0.5)
        return 0.5 * losses.sum(1) * len(labels) / (labels != -100).sum()

    texts = [{name: value[0] for name, value in padded_texts(1, 9).items()} for _ in range(40)]
    values = []
    for arguments in ({}, {"sample_losses": losses}):
        torch.manual_seed(3)
        options = {"per_device_train_batch_size": 8, "num_train_epochs": 1, "subclass": WeightedTokens}
        trainer = make_trainer(MODELS["Llama"](), texts, **options)
        stopping = HeldInStopping(**arguments).attach(trainer)
        trainer.train()
        values.append(values_of(stopping))
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_mixed_precision_is_measured_in_full_precision(run, make_trainer, make_mlp):
    histories = []
    for bf16 in (False, True):
        trainer = make_trainer(run.Digits(make_mlp()), bf16=bf16, max_steps=1)
        stopping = HeldInStopping(every=1).attach(trainer)
        trainer.args.learning_rate = 0.0
        trainer.train()
        histories.append(stopping.stopper.history)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("signal", ["gradient_disparity", "gsnr"])
@pytest.mark.filterwarnings("ignore:Gradients of single samples are taken one")  # transformers branch on values
def test_only_the_adapters_of_a_lora_model_are_probed(signal, make_trainer, same_state, padded_texts):
    texts = [{name: value[0] for name, value in padded_texts(1, 9).items()} for _ in range(40)]
    torch.manual_seed(3)
    base = LlamaForCausalLM(LlamaConfig(**TINY))
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)
    model = peft.get_peft_model(base, settings)
    frozen = {name: value.clone() for name, value in model.state_dict().items() if "lora_" not in name}
    trainer = make_trainer(model, texts, per_device_train_batch_size=8, num_train_epochs=3, learning_rate=0.5)
    stopping = HeldInStopping(signal=signal, keep="lowest").attach(trainer)
    trainer.train()
    assert len(stopping.stopper.history) == 3
    assert all(reading.values[signal] > 0 for reading in stopping.stopper.history)
    assert same_state(frozen, {name: value for name, value in model.state_dict().items() if "lora_" not in name})
    losses = OutputLosses()
    rows = heldin.Probe(model, None, sample_losses=losses).gradients([padded_texts(4, 9)], "none").matrix()
    assert rows.shape[1] == model.get_nb_trainable_parameters()[0] < 0.2 * base.num_parameters()


@pytest.mark.parametrize(("every", "steps"), [(None, [10, 20, 30]), (4, [4, 8, 12, 16, 20, 24, 28])])
def test_values_are_logged_beside_the_trainers_own(every, steps, make_trainer, values_of):
    recorder = LogRecorder()
    trainer = make_trainer(num_train_epochs=3, logging_steps=4, callbacks=[recorder])
    stopping = HeldInStopping(every=every, patience=100).attach(trainer)
    trainer.train()
    ours = [(step, logs) for step, logs in recorder.logs if "heldin/gradient_disparity" in logs]
    assert [step for step, _ in ours] == steps
    assert [logs["heldin/gradient_disparity"] for _, logs in ours] == values_of(stopping)
    assert [step for step, logs in recorder.logs if "loss" in logs] == [4, 8, 12, 16, 20, 24, 28]


def test_without_attach_the_values_are_in_the_log_history(make_trainer):
    stopping = HeldInStopping()
    trainer = make_trainer(num_train_epochs=2, callbacks=[stopping])
    trainer.train()
    rows = [row for row in trainer.state.log_history if "heldin/gradient_disparity" in row]
    assert [row["step"] for row in rows] == [10, 20]
    assert trainer.callback_handler.callbacks.count(stopping.attach(trainer)) == 1


def test_the_sentence_is_printed_once(train, capsys):
    stopping = HeldInStopping(patience=1)
    train(stopping)
    assert capsys.readouterr().out.splitlines().count(stopping.sentence) == 1


def test_an_incomplete_epoch_is_not_measured_and_another_training_starts_again(make_trainer):
    trainer = make_trainer(max_steps=25)
    stopping = HeldInStopping(patience=100).attach(trainer)
    for _ in range(2):
        trainer.train()
        assert [reading.epoch for reading in stopping.stopper.history] == [0, 1]


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_the_same(run, kill_program, tmp_path):
    folder = tmp_path / "killed"
    stopping, resumed = (HeldInStopping(patience=2, keep="before_rise") for _ in range(2))
    expected = run.summary_of(stopping, run.train(tmp_path / "whole", stopping))
    assert expected["decision"]["stop"]
    assert expected["steps"] > 40
    kill_program("transformers_run", folder, 34)
    assert (folder / "checkpoint-30" / "heldin.pt").exists()
    result = run.summary_of(resumed, run.train(folder, resumed, resume=True))
    assert json.dumps(result) == json.dumps(expected)


def test_a_resumed_training_stops_at_once_unless_patience_is_raised(run, tmp_path, same_state):
    first = HeldInStopping(patience=1)
    trainer = run.train(tmp_path, first)
    shutil.copytree(tmp_path, copy := tmp_path.with_name(tmp_path.name + "-copy"))
    again = HeldInStopping(patience=1)
    stopped = run.train(copy, again, resume=True)
    assert again.decision == first.decision
    assert again.stopper.history == first.stopper.history
    assert same_state([*stopped.model.parameters()], [*trainer.model.parameters()])  # after one empty step
    patient = HeldInStopping(patience=3)
    longer = run.train(tmp_path, patient, resume=True)
    assert patient.stopper.history[: len(first.stopper.history)] == first.stopper.history
    assert patient.decision.epoch == longer.state.epoch - 1 > first.decision.epoch


def test_steps_are_counted_on_when_training_resumes_within_an_epoch(run, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 13, "max_steps": 26}
    first, again = (HeldInStopping(every=5, patience=100) for _ in range(2))
    run.train(tmp_path, first, **options)
    shutil.rmtree(tmp_path / "checkpoint-26")
    run.train(tmp_path, again, resume=True, **options)
    assert again.stopper.history == first.stopper.history
    assert [reading.epoch for reading in again.stopper.history] == [4, 9, 14, 19, 24]


def test_a_checkpoint_without_the_state_warns_and_the_state_can_be_loaded_from_elsewhere(run, tmp_path):
    run.train(tmp_path, HeldInStopping(patience=100), num_train_epochs=2)
    shutil.move(tmp_path / "checkpoint-20" / "heldin.pt", tmp_path / "state.pt")
    restarted = HeldInStopping(patience=100)
    with pytest.warns(HeldinWarning, match="measuring starts again"):
        run.train(tmp_path, restarted, resume=True, num_train_epochs=3)
    assert len(restarted.stopper.history) == 1
    shutil.rmtree(tmp_path / "checkpoint-30")
    loaded = HeldInStopping(patience=100)
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    run.train(tmp_path, loaded, resume=True, num_train_epochs=3)
    assert len(loaded.stopper.history) == 3


def test_an_iterable_dataset_is_measured(make_trainer, data):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(data)

    trainer = make_trainer(dataset=Stream(), max_steps=12)
    stopping = HeldInStopping(every=4).attach(trainer)
    trainer.train()
    assert [reading.epoch for reading in stopping.stopper.history] == [3, 7, 11]


def test_only_a_trainer_can_be_attached_to(mlp):
    with pytest.raises(ArgumentError, match="Found a Sequential. Pass the transformers.Trainer"):
        HeldInStopping().attach(mlp)


def test_a_subclass_of_trainer_can_be_attached_to(make_trainer):
    class Custom(Trainer):
        def log(self, logs, *arguments):
            super().log({**logs, "mine": 1.0}, *arguments)

    trainer = make_trainer(num_train_epochs=1, subclass=Custom)
    HeldInStopping().attach(trainer)
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "heldin/gradient_disparity" in row]
    assert row["mine"] == 1.0


class Collecting(nn.Module):
    """Collects the gradients of its batches by hand, by another pass through the graph."""

    def __init__(self, net, interrupt_at=None, weights=None):
        super().__init__()
        self.net, self.interrupt_at, self.weights, self.rows = net, interrupt_at, weights, []

    def forward(self, x, labels=None):
        logits = self.net(x)
        losses = cross_entropy(logits, labels, self.weights, reduction="none")
        parts = torch.autograd.grad(
            losses.mean() / losses.std().detach(), list(self.net.parameters()), retain_graph=True
        )
        self.rows.append(torch.cat([part.reshape(-1) for part in parts]).double())
        if len(self.rows) == self.interrupt_at:
            raise RuntimeError("out of memory")
        return {"loss": cross_entropy(logits, labels, self.weights), "logits": logits}


@pytest.mark.parametrize(
    ("arguments", "options", "weights", "num"),
    [
        ({}, {"num_train_epochs": 2}, None, 5),
        ({}, {"num_train_epochs": 2, "max_grad_norm": 0.01}, None, 5),
        ({}, {"num_train_epochs": 2}, torch.linspace(0.1, 4.0, 10), 5),
        ({"every": 2}, {"max_steps": 2, "gradient_accumulation_steps": 4}, None, 4),
    ],
    ids=["last steps", "clipped", "class weights", "micro-batches"],
)
def test_the_gradients_are_those_of_training(make_trainer, make_mlp, arguments, options, weights, num):
    model = Collecting(make_mlp(), weights=weights)
    trainer = make_trainer(model, **options)
    stopping = HeldInStopping(**OF_TRAINING, **arguments).attach(trainer)
    trainer.train()
    reading = stopping.stopper.history[-1]
    assert reading.num_batches == num
    expected = heldin.signals.reference.gradient_disparity(torch.stack(model.rows[-num:]))
    assert reading.values["gradient_disparity"] == pytest.approx(expected, rel=1e-5)
    assert "compute_loss" not in vars(trainer)


def test_the_gradients_of_a_language_model_are_those_of_training(make_trainer):
    model = MODELS["GPT-2"]()
    texts = [{"input_ids": ids, "labels": ids} for ids in torch.randint(20, (240, 12))]
    trainer = make_trainer(model, texts, num_train_epochs=2)
    stopping = HeldInStopping(**OF_TRAINING).attach(trainer)
    trainer.train()
    assert [reading.num_batches for reading in stopping.stopper.history] == [5, 5]
    assert all(reading.values["gradient_disparity"] > 0 for reading in stopping.stopper.history)


def test_an_interrupted_training_leaves_trainer_and_model_as_they_were(make_trainer, make_mlp):
    model = Collecting(make_mlp(), interrupt_at=12)
    trainer = make_trainer(model)
    HeldInStopping(**OF_TRAINING).attach(trainer)
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.train()
    assert "compute_loss" not in vars(trainer)
    assert not any(parameter._backward_hooks for parameter in model.parameters())
