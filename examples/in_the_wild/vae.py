"""A variational autoencoder: reconstruction and KL divergence, both summed over the batch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +


class VAE(nn.Module):
    """Returns the reconstruction, the means and the logarithms of the variances."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(20, 8)
        self.decoder = nn.Linear(4, 20)

    def forward(self, x):
        """Draw a latent vector and decode it."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return torch.sigmoid(self.decoder(latent)), mean, log_variance


def loss_function(reconstruction, x, mean, log_variance):
    """Return the loss of a batch."""
    bce = F.binary_cross_entropy(reconstruction, x, reduction="sum")
    return bce - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())


def sample_losses(model, batch):  # +
    """Return the same loss for each sample."""  # +
    (x,) = batch  # +
    reconstruction, mean, log_variance = model(x)  # +
    bce = F.binary_cross_entropy(reconstruction, x, reduction="none").sum(1)  # +
    return bce - 0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)  # +


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.rand(96, 20)), batch_size=16, shuffle=True)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
stopper = heldin.EarlyStopping(model, sample_losses=sample_losses)  # +
for _epoch in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        reconstruction, mean, log_variance = model(x)
        loss_function(reconstruction, x, mean, log_variance).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
