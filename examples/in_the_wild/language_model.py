"""A recurrent language model that is called with its hidden state; tokens come in (time, batch) order."""

import torch
from torch import nn
from torch.nn import functional as F

import heldin  # +


class RNN(nn.Module):
    """Scores of the next token, and the hidden state."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.rnn = nn.GRU(16, 16)
        self.decoder = nn.Linear(16, 30)

    def forward(self, tokens, hidden):
        """Return scores (t, m, 30) and the hidden state."""
        output, hidden = self.rnn(self.embedding(tokens), hidden)
        return self.decoder(output), hidden


def sample_losses(model, batch):  # +
    """Return the mean loss of each sequence: (t, m) tokens -> (m,)."""  # +
    tokens, targets = batch  # +
    scores, _ = model(tokens, torch.zeros(1, tokens.shape[1], 16))  # +
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets).mean(0)  # +


torch.manual_seed(0)
text = torch.randint(30, (61, 12))
chunks = [(text[i : i + 10], text[i + 1 : i + 11]) for i in range(0, 60, 10)]
model = RNN()
stopper = heldin.EarlyStopping(  # +
    model,  # +
    sample_losses=sample_losses,  # +
    num_samples=lambda batch: batch[0].shape[1],  # +
)  # +
for _epoch in range(3):
    hidden = torch.zeros(1, 12, 16)
    for tokens, targets in chunks:
        model.zero_grad()
        scores, hidden = model(tokens, hidden.detach())
        F.cross_entropy(scores.flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-1.0)
    if stopper.step(chunks):  # +
        break  # +
print(stopper.decision)  # +
