"""A plain loop around a Hugging Face model that returns its loss: no loss has to be given to heldin."""

import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import heldin  # +

torch.manual_seed(0)
config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
tokens = torch.randint(1, 40, (48, 12))
labels = tokens.clone()
labels[::2, 8:] = -100
data = [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
loader = DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
stopper = heldin.EarlyStopping(model)  # +
for _epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
