import pytest
import torch

from heldin.gram import gram
from heldin.types import Gradients


@pytest.fixture
def gram_of():
    """The Gram matrix, with inner products, of vectors given as they are."""

    def made(vectors, num_samples=()):
        matrix = torch.stack([torch.as_tensor(vector) for vector in vectors])
        rows = tuple((row,) for row in matrix)
        return gram(Gradients(rows, (1.0,) * len(rows), (matrix.shape[1],), len(rows), num_samples), inner=True)

    return made


@pytest.fixture
def triangle():
    """The three vectors of the worked examples."""
    return torch.tensor([(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)], dtype=torch.float64)


@pytest.fixture
def rotation():
    """A random rotation of d coordinates."""

    def made(d):
        turned, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))
        return turned

    return made
