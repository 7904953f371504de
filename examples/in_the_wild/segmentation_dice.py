"""Segmentation with the dice loss of a whole batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +


def dice_loss(model, batch):
    """Return 1 minus the overlap of prediction and mask, over all pixels of the batch."""
    images, masks = batch
    predicted = torch.sigmoid(model(images))
    return 1 - (2 * (predicted * masks).sum() + 1) / (predicted.sum() + masks.sum() + 1)


torch.manual_seed(0)
images = torch.randn(64, 1, 16, 16)
loader = DataLoader(TensorDataset(images, (images > 0.5).float()), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
signals = [heldin.GradientDisparity(rescale="mean"), "cosine"]  # +
stopper = heldin.EarlyStopping(model, batch_loss=dice_loss, signal=signals)  # +
for _epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        dice_loss(model, batch).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
