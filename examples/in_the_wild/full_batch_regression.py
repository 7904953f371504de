"""Full-batch training: 200 samples, one step per epoch. The samples of the batch are split into five parts."""

import torch
from torch import nn

import heldin  # +

torch.manual_seed(0)
x = torch.linspace(-3, 3, 200)[:, None]
y = torch.sin(x) + 0.3 * torch.randn_like(x)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
loss_fn = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
stopper = heldin.EarlyStopping(model, loss_fn, every=2)  # +


def closure():
    """Return the loss with its gradient."""
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    return loss


for _epoch in range(4):
    optimizer.step(closure)
    if stopper.step([(x, y)]):  # +
        break  # +
print(stopper.decision)  # +
