import builtins
import os
import random

import numpy
import pytest
import torch
from hypothesis import settings

os.environ.setdefault("KERAS_BACKEND", "torch")  # before anybody imports keras
torch.set_num_threads(1)  # what is tested is small: threads would wait for each other, on a busy machine for long

settings.register_profile("heldin", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("heldin")


@pytest.fixture(autouse=True)
def _one_seed():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_print():
    """Ray replaces `print` in its process, and functions that refer to it cannot be pickled afterwards."""
    before = builtins.print
    yield
    builtins.print = before
