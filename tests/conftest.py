import os
import random
import shutil
from itertools import count
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import settings

os.environ.setdefault("KERAS_BACKEND", "torch")  # before anybody imports keras
torch.set_num_threads(1)  # what is tested is small: threads would wait for each other, on a busy machine for long

settings.register_profile("heldin", derandomize=True, deadline=None)
settings.load_profile("heldin")


@pytest.fixture(autouse=True)
def _one_seed():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


_NUMBER = count()


@pytest.fixture
def tiny_paper(tmp_path):
    """The folder of a paper whose two items train in a second; under a name of its own, as its modules are kept."""
    declared = Path(__file__).parent / "lab" / "reproducing" / "tiny_paper"
    return Path(shutil.copytree(declared, tmp_path / f"tiny_paper_{next(_NUMBER)}"))
