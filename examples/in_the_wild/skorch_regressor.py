"""skorch: a regressor with scikit-learn's interface."""

import torch
from skorch import NeuralNetRegressor
from torch import nn

from heldin.integrations.skorch import HeldInStopping  # +

torch.manual_seed(0)
x = torch.randn(96, 10)
y = x[:, :1] + 0.5 * torch.randn(96, 1)
callbacks = []
stopping = HeldInStopping()  # +
callbacks.append(stopping)  # +
net = NeuralNetRegressor(
    nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)),
    lr=0.05,
    batch_size=16,
    max_epochs=3,
    train_split=None,
    iterator_train__shuffle=True,
    callbacks=callbacks,
    verbose=0,
)
net.fit(x, y)
model = net.module_
print(stopping.decision)  # +
