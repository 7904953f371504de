"""Fabric: a loop with bfloat16 and gradient clipping."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.fabric import HeldInStopping  # +

torch.manual_seed(0)
fabric = Fabric(accelerator="cpu", precision="bf16-mixed")
net = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
data = TensorDataset(torch.randn(96, 10), torch.randint(2, (96, 4)).float())
loader = fabric.setup_dataloaders(DataLoader(data, batch_size=16, shuffle=True))
loss_fn = nn.BCEWithLogitsLoss()
stopping = HeldInStopping(loss_fn=loss_fn).attach(fabric, model)  # +
for _epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        fabric.backward(loss_fn(model(x), y))
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
    if stopping.step(loader):  # +
        break  # +
stopping.finish()  # +
