"""The paper profile at full width: each kind of run starts, is interrupted after an epoch, and is resumed."""

import numpy
import pytest

from heldin.lab.run import run
from heldin.lab.store import Store
from paper.data import SOURCES
from paper.items import ITEMS

SHAPES = {"mnist": (28, 28), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}
NUM = 20  # samples, in batches of 4


def kinds():
    """One spec for each dataset, network, optimizer and loss, with the fewest signals, on few samples."""
    found = {}
    for spec in sorted((s for item in ITEMS for s in item.specs("paper")), key=lambda spec: len(spec.signals)):
        dataset, _ = SOURCES.get(spec.dataset, (spec.dataset, 0))
        if dataset in SHAPES and spec.scale == 1.0 and spec.fold is None:
            kind = dataset, spec.model, spec.optimizer, spec.loss, spec.augment
            found.setdefault(kind, spec.with_(dataset=dataset, seed=0, num_samples=NUM, batch_size=4))
    return list(found.values())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Random data of the right shapes."""
    folder, chance = tmp_path_factory.mktemp("data"), numpy.random.default_rng(0)
    for name, shape in SHAPES.items():
        images = {f"x_{part}": chance.integers(0, 256, (NUM, *shape), dtype=numpy.uint8) for part in ("train", "test")}
        labels = {f"y_{part}": numpy.arange(NUM, dtype=numpy.uint8) % 10 for part in ("train", "test")}
        numpy.savez(folder / f"{name}.npz", **images, **labels)
    return folder


def interrupt_after(last):
    def on_epoch(line):
        if line["epoch"] == last:
            raise KeyboardInterrupt

    return on_epoch


@pytest.mark.slow
@pytest.mark.parametrize("spec", kinds(), ids=lambda spec: spec.title.replace(" ", "-"))
def test_a_run_of_the_paper_profile_is_resumed(spec, root, tmp_path):
    store = Store(tmp_path)
    for last in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            run(spec, store, data_root=root, on_epoch=interrupt_after(last))
        record = store.record(spec)
        assert [line["epoch"] for line in record.epochs] == [*range(last + 1)]
        assert record.epochs[-1]["signals"].keys() == {*spec.signals}
    assert not store.folder(spec).done
    begun = [line["at_epoch"] for line in store.folder(spec).timings() if "begun" in line]
    assert begun == [0, 1]
