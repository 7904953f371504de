"""Supervised fine-tuning with trl and LoRA; prompts do not count in the loss."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from heldin.integrations.transformers import HeldInStopping  # +

torch.manual_seed(0)
words = ["<pad>", "<eos>", *(f"w{i}" for i in range(38))]
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)})),
    pad_token="<pad>",
    eos_token="<eos>",
)
config = LlamaConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    pad_token_id=0,
    eos_token_id=1,
)
texts = []
for length in torch.randint(5, 13, (48,)).tolist():
    ids = torch.randint(2, 40, (length,)).tolist()
    texts.append({"input_ids": ids, "completion_mask": [0, 0, *[1] * (length - 2)]})
arguments = SFTConfig(
    output_dir="sft",
    per_device_train_batch_size=8,
    num_train_epochs=3,
    learning_rate=1e-3,
    lr_scheduler_type="constant",
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    gradient_checkpointing=False,
    bf16=False,
    use_cpu=True,
    seed=0,
)
trainer = SFTTrainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=Dataset.from_list(texts),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
)
stopping = HeldInStopping(patience=100).attach(trainer)  # +
trainer.train()
model = trainer.model
