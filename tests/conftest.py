import random

import numpy
import pytest
import torch
from hypothesis import settings

settings.register_profile("heldin", derandomize=True, deadline=None)
settings.load_profile("heldin")


@pytest.fixture(autouse=True)
def _one_seed():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
