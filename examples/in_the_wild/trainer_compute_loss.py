"""Hugging Face's Trainer with its own compute_loss: class weights. This loss is measured, not the model's."""

import tempfile

import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from heldin.integrations.transformers import HeldInStopping  # +


class WeightedTrainer(Trainer):
    """Weights the classes."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        """Return the weighted cross-entropy."""
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        loss = F.cross_entropy(outputs.logits, inputs["labels"], weight=torch.tensor([1.0, 2.0, 4.0]))
        return (loss, outputs) if return_outputs else loss


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
trainer = WeightedTrainer(model, arguments, train_dataset=data)
stopping = HeldInStopping().attach(trainer)  # +
trainer.train()
