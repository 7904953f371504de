"""Accelerate: a loop with gradient accumulation around a model that returns its loss."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForTokenClassification

from heldin.integrations.accelerate import HeldInStopping  # +

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=5
)
model = BertForTokenClassification(config)
data = [{"input_ids": torch.randint(50, (8,)), "labels": torch.randint(5, (8,))} for _ in range(48)]
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(data, batch_size=8, shuffle=True)
)
stopping = HeldInStopping().attach(accelerator, model)  # +
for _epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
    if stopping.step(loader):  # +
        break  # +
stopping.finish()  # +
