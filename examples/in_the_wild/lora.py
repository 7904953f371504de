"""LoRA with PEFT in a plain loop: only the adapters are trained, and only they are measured."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import heldin  # +

torch.manual_seed(0)
config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
lora = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
model = get_peft_model(GPT2LMHeadModel(config), lora)
tokens = torch.randint(1, 40, (48, 12))
loader = DataLoader([{"input_ids": x, "labels": x} for x in tokens], batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
stopper = heldin.EarlyStopping(model)  # +
for _epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
