"""The losses behind a model's outputs, told from logits and labels; refused where they cannot be."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
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
)

from heldin.errors import BatchesError, LossError
from heldin.integrations._huggingface import OutputAdapter, OutputLosses, full_precision

TINY = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def bert(kind, **options):
    return kind(BertConfig(**TINY, **options))


CASES = {
    "GPT-2": lambda texts: (
        GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2)),
        texts,
    ),
    "Llama": lambda texts: (LlamaForCausalLM(LlamaConfig(**TINY)), texts),
    "masked": lambda texts: (bert(BertForMaskedLM), texts),
    "tokens": lambda texts: (bert(BertForTokenClassification, num_labels=20), texts),
    "sequence to sequence": lambda texts: (
        T5ForConditionalGeneration(
            T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
        ),
        texts,
    ),
    "classes": lambda texts: (
        bert(BertForSequenceClassification, num_labels=3),
        {**texts, "labels": torch.randint(3, (6,))},
    ),
    "regression": lambda texts: (
        bert(BertForSequenceClassification, num_labels=1),
        {**texts, "labels": torch.randn(6)},
    ),
    "several labels": lambda texts: (
        bert(BertForSequenceClassification, num_labels=3),
        {**texts, "labels": torch.randint(2, (6, 3)).float()},
    ),
}


def one_by_one(batch):
    return [{name: value[i : i + 1] for name, value in batch.items()} for i in range(6)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_samples_loss_is_the_models_loss_for_it_alone(case, padded):
    model, batch = case(padded(6, 9))
    model.eval()  # dropout would make it another model each time
    losses = OutputLosses()
    losses.settle(model, batch)
    found = losses(model, batch)
    alone = [model(**one).loss for one in one_by_one(batch)]
    assert torch.allclose(found, torch.stack(alone), rtol=1e-5)
    assert found.shape == (6,)


def test_smoothed_labels_are_as_the_trainer_smooths_them(tmp_path, program, padded):
    model, batch = CASES["Llama"](padded(6, 9))
    trainer = program("transformers_run").a_trainer(tmp_path, model.eval(), None, label_smoothing_factor=0.2)
    losses = OutputLosses(smoothing=0.2)
    losses.settle(model, batch)
    expected = torch.stack([trainer.compute_loss(model, one) for one in one_by_one(batch)])
    assert torch.allclose(losses(model, batch), expected, rtol=1e-5)


class Head(nn.Module):
    """The inputs are the logits, scaled; `forms` is what it returns of loss and logits."""

    def __init__(self, loss=F.cross_entropy, forms=lambda loss, logits: {"loss": loss, "logits": logits}):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.loss, self.forms = loss, forms

    def forward(self, x, labels):
        logits = self.scale * x
        return self.forms(self.loss(logits, labels), logits)


def token_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


BATCH = {"x": torch.zeros(3, 4), "labels": torch.tensor([0, 3, 1])}


@pytest.mark.parametrize("forms", [lambda *outputs: outputs, lambda *outputs: [*outputs, None]], ids=["tuple", "list"])
def test_outputs_without_names_are_loss_and_logits(forms):
    losses = OutputLosses()
    losses.settle(model := Head(forms=forms), BATCH)
    assert losses(model, BATCH).tolist() == pytest.approx([math.log(4)] * 3)


def test_the_loss_of_a_text_is_the_mean_over_its_tokens_that_have_a_label():
    """Logits (0, 0) and (0, log 3): losses log 2, and log 4/3 for the likelier token. A text of padding has none."""
    even, leaning = [0.0, 0.0], [0.0, math.log(3)]
    x = torch.tensor([[even, leaning, leaning], [leaning, even, even], [even, even, even]])
    batch = {"x": x, "labels": torch.tensor([[0, 1, 1], [1, -100, -100], [-100, -100, -100]])}
    losses = OutputLosses()
    losses.settle(model := Head(token_loss), batch)
    expected = [(math.log(2) + 2 * math.log(4 / 3)) / 3, math.log(4 / 3), 0.0]
    assert losses(model, batch).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (lambda loss, logits: {"logits": logits}, "Found no such tensors"),
        (lambda loss, logits: logits, "Found no such tensors"),
        (lambda loss, logits: (loss,), "Found no such tensors"),
        (
            lambda loss, logits: {"loss": loss + 0.1, "logits": logits},
            r"Found 1.48629, with logits of shape \(3, 4\) and labels of shape \(3,\)",
        ),
        (lambda loss, logits: {"loss": loss * math.nan, "logits": logits}, "Found nan"),
        (lambda loss, logits: {"loss": loss, "logits": logits[:2]}, r"logits of shape \(2, 4\)"),
    ],
    ids=["no loss", "logits alone", "loss alone", "something added", "not a number", "other logits"],
)
def test_outputs_that_tell_no_loss_of_samples_are_refused_with_the_remedy(outputs, found):
    losses = OutputLosses()
    with pytest.raises(LossError, match=f"The model.* should .*{found}.*Pass sample_losses=f"):
        losses.settle(Head(forms=outputs), BATCH)
    assert losses.form is None


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"x": BATCH["x"]}, r"the keys \['x'\]. Pass sample_losses=f"),
        ((BATCH["x"], BATCH["labels"]), r"a tuple. For \(inputs, targets\) batches pass loss_fn="),
    ],
    ids=["no labels", "a pair"],
)
def test_a_batch_without_labels_is_refused_with_the_remedy(batch, found):
    with pytest.raises(BatchesError, match=f"with `labels` in it. Found {found}"):
        OutputLosses().settle(Head(), batch)


@pytest.mark.parametrize("leaves", [nullcontext(), pytest.raises(KeyError)], ids=["left", "raised"])
def test_the_forward_that_accelerate_wrapped_is_the_models_own_for_a_while(leaves):
    model = nn.Linear(2, 2)
    own, wrapped = model.forward, lambda x: 2.0 * x
    model._original_forward, model.forward = own, wrapped
    with leaves, full_precision(model):
        assert model.forward is own
        if not isinstance(leaves, nullcontext):
            raise KeyError
    assert vars(model)["forward"] is wrapped


def test_a_model_that_was_never_prepared_is_run_as_it_is():
    model = nn.Linear(2, 2)
    before = set(vars(model))
    with full_precision(model):
        assert set(vars(model)) == before


def test_the_models_own_loss_is_settled_once_and_where_no_other_is_given():
    passes = []
    model = Head()
    model.register_forward_hook(lambda *_: passes.append(1))
    batches = [{"x": torch.randn(3, 4), "labels": torch.tensor([0, 3, 1])} for _ in range(5)]
    given = OutputAdapter(sample_losses=lambda model, batch: model(**batch)["logits"].square().mean(1))
    own = OutputAdapter()
    for adapter in (given, own):
        adapter.begin(model)
        adapter.settle(batches)
    assert len(passes) == 1
    own.settle(batches)
    assert len(passes) == 1
    assert own.look(batches)["heldin/gradient_disparity"] > 0.0
    assert len(passes) == 1 + 5
