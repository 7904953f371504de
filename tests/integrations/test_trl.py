"""trl: supervised fine-tuning of adapters is measured by the callback of the Hugging Face Trainer."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

pytest.importorskip("trl")

from datasets import Dataset, disable_progress_bars
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from heldin.integrations.transformers import HeldInStopping

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]
NUM_WORDS = 20


def make_trainer(folder, loss_type):
    """A tiny network with LoRA; the first two tokens of each text are a prompt, which does not count."""
    disable_progress_bars()
    torch.manual_seed(3)
    words = {"<pad>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, NUM_WORDS)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words)), pad_token="<pad>", eos_token="<eos>"
    )
    lengths = torch.randint(5, 10, (40,)).tolist()
    texts = [
        {"input_ids": torch.randint(2, NUM_WORDS, (n,)).tolist(), "completion_mask": [0, 0, *[1] * (n - 2)]}
        for n in lengths
    ]
    config = LlamaConfig(
        vocab_size=NUM_WORDS,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    arguments = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        loss_type=loss_type,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return SFTTrainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=Dataset.from_list(texts),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )


def next_token_losses(model, batch):
    """The losses of all tokens, (m, t), computed from the logits; labels of -100 do not count."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**inputs).logits[:, :-1].transpose(1, 2)
    return cross_entropy(logits, batch["labels"][:, 1:], reduction="none")


def dynamic_losses(model, batch):
    losses = next_token_losses(model, batch)
    return losses * torch.exp(-losses).detach()


@pytest.mark.parametrize(("loss_type", "reference"), [("nll", next_token_losses), ("dft", dynamic_losses)])
def test_the_loss_of_the_trainer_is_measured_and_training_does_not_change(
    loss_type, reference, tmp_path, values_of, same_state
):
    values, weights = [], []
    for arguments in ({}, {"sample_losses": reference}, None):
        trainer = make_trainer(tmp_path, loss_type)
        if arguments is not None:
            stopping = HeldInStopping(patience=100, **arguments).attach(trainer)
        trainer.train()
        weights.append(trainer.model.state_dict())
        if arguments is not None:
            values.append(values_of(stopping))
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    assert same_state(weights[0], weights[2])
    measured = stopping.stopper.reader.probe.parameters()
    assert sum(map(torch.numel, measured)) == trainer.model.get_nb_trainable_parameters()[0]
