import pytest
import torch
from torch import nn

from heldin.gradients import Gradients
from heldin.probing import Probe
from heldin.probing.per_sample import class_moments, sample_moments


@pytest.fixture
def gram_of():
    """Returns the Gram matrix, with inner products, of the given vectors."""

    def gram(vectors, num_samples=()):
        matrix = torch.stack([torch.as_tensor(vector) for vector in vectors])
        rows = tuple((row,) for row in matrix)
        return Gradients(rows, (1.0,) * len(rows), (matrix.shape[1],), len(rows), num_samples).gram(inner=True)

    return gram


def _identity_probe(rows):
    """A model whose gradient for a sample is the sample."""
    model = nn.Linear(rows.shape[1], 1, bias=False, dtype=torch.float64)
    return Probe(model, lambda output, target: output.squeeze(1))


def _as_rows(batch):
    rows = torch.as_tensor(batch, dtype=torch.float64)
    return rows[:, None] if rows.ndim == 1 else rows


@pytest.fixture(scope="session")
def moments_of():
    """Returns the moments of batches whose per-sample gradients are the given vectors (or numbers)."""

    def moments(*batches):
        rows = [_as_rows(batch) for batch in batches]
        return sample_moments(_identity_probe(rows[0]), [(part, torch.zeros(len(part))) for part in rows])

    return moments


@pytest.fixture
def class_moments_of():
    """Returns the moments of each class, where the per-sample gradients are the given vectors."""

    def moments(vectors, labels):
        rows = _as_rows(vectors)
        return class_moments(_identity_probe(rows), [(rows, torch.tensor(labels))])

    return moments


@pytest.fixture
def triangle():
    """The three vectors of the worked examples."""
    return torch.tensor([(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)], dtype=torch.float64)


@pytest.fixture
def rotation():
    """Returns a random rotation of d coordinates."""

    def random_rotation(d):
        return torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0]

    return random_rotation


@pytest.fixture
def readings():
    """Returns the values of a stateful signal over a series of payloads."""

    def read(signal, series):
        memory, values = {}, []
        for payload in series:
            memory, value = signal.step(memory, payload)
            values.append(value)
        return values

    return read
