"""Hugging Face's Trainer: a small BERT for classification."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from heldin.integrations.transformers import HeldInStopping  # +

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
)
model = BertForSequenceClassification(config)
data = [
    {"input_ids": torch.randint(50, (8,)), "attention_mask": torch.ones(8, dtype=torch.long), "labels": i % 3}
    for i in range(64)
]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=2,
    per_device_train_batch_size=8,
    lr_scheduler_type="constant",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model, arguments, train_dataset=data)
stopping = HeldInStopping().attach(trainer)  # +
trainer.train()
