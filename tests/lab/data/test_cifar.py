"""CIFAR-10 and CIFAR-100, in archives as Python 2 pickled them."""

import io
import os
import pickle
import tarfile

import numpy
import pytest
import torch

from heldin.errors import DataError
from heldin.lab import data
from heldin.lab.data import DATASETS
from heldin.lab.data.cifar import PickledArray, read_pickle

LAYOUTS = {  # name -> archive, folder, training members, test member, key of the labels, classes
    "cifar10": (
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        [f"data_batch_{i}" for i in range(1, 6)],
        "test_batch",
        "labels",
        10,
    ),
    "cifar100": ("cifar-100-python.tar.gz", "cifar-100-python", ["train"], "test", "fine_labels", 100),
}
EACH = 4  # images in a batch


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 and NumPy 1 wrote: strings of bytes, and the old name of NumPy's module."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        content = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(value)

    def save_old_global(self, value, name=None):
        module = value.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{value.__qualname__}\n".encode())
        self.memoize(value)

    def save_global(self, value, name=None):
        self.save_old_global(value)

    dispatch[bytes] = dispatch[str] = save_string
    dispatch[type(len)] = dispatch[type(lambda: 0)] = dispatch[type] = save_old_global


def as_python2(value):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def batches_of(name):
    """member -> batch, with random images and labels."""
    _, _, train, test, key, num_classes = LAYOUTS[name]
    random = numpy.random.default_rng(0)
    return {
        member: {
            "data": random.integers(256, size=(EACH, 3072), dtype=numpy.uint8),
            key: random.integers(num_classes, size=EACH).tolist(),
            "filenames": ["x.png"] * EACH,
            "coarse_labels": [19] * EACH,
        }
        for member in [*train, test]
    }


def write_archive(root, name, contents):
    archive, folder, *_ = LAYOUTS[name]
    with tarfile.open(root / archive, "w:gz") as tar:
        for member, content in reversed(contents.items()):  # not in the order in which they are read
            entry = tarfile.TarInfo(f"{folder}/{member}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


@pytest.fixture(params=LAYOUTS)
def name(request):
    return request.param


@pytest.fixture
def batches(name):
    return batches_of(name)


@pytest.fixture
def contents(batches):
    return {member: as_python2(batch) for member, batch in batches.items()}


def assert_is(arrays, name, batches):
    _, _, train, test, key, num_classes = LAYOUTS[name]
    images = numpy.concatenate([batches[member]["data"] for member in train]).reshape(-1, 3, 32, 32)
    assert torch.equal(arrays.x_train, torch.from_numpy(images) / 255)
    assert arrays.y_train.tolist() == [label for member in train for label in batches[member][key]]
    assert torch.equal(arrays.x_test, torch.from_numpy(batches[test]["data"].reshape(-1, 3, 32, 32)) / 255)
    assert arrays.y_test.tolist() == batches[test][key]
    assert arrays.num_classes == num_classes


def test_these_tests_write_what_python_2_wrote(batches):
    content = as_python2(batches)
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content
    assert b"_codecs" not in content


def test_the_archive_is_read_without_unpacking_it(tmp_path, name, batches, contents):
    write_archive(tmp_path, name, contents)
    assert_is(data.load(name, tmp_path, download=False), name, batches)
    assert os.listdir(tmp_path) == [LAYOUTS[name][0]]


def test_the_folder_it_unpacks_to_is_read(tmp_path, name, batches, contents):
    write_archive(tmp_path, name, contents)
    with tarfile.open(tmp_path / LAYOUTS[name][0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / LAYOUTS[name][0]).unlink()
    assert_is(data.load(name, tmp_path, download=False), name, batches)


def test_channels_last_in_an_npz_file_are_the_same_images(tmp_path, name, batches):
    _, _, train, test, key, _ = LAYOUTS[name]
    parts = {
        "x_train": numpy.concatenate([batches[member]["data"] for member in train]),
        "x_test": batches[test]["data"],
        "y_train": numpy.concatenate([batches[member][key] for member in train]),
        "y_test": numpy.array(batches[test][key]),
    }
    for key in ("x_train", "x_test"):
        parts[key] = parts[key].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    numpy.savez(tmp_path / f"{name}.npz", **parts)
    assert_is(data.load(name, tmp_path, download=False), name, batches)


def test_a_malicious_member_is_refused_and_runs_nothing(tmp_path, name, contents):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "mark"),)

    contents[LAYOUTS[name][3]] = pickle.dumps({"data": Malicious()}, protocol=2)
    write_archive(tmp_path, name, contents)
    with pytest.raises(DataError, match="it imports .*mkdir"):
        data.load(name, tmp_path, download=False)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda batch, key: batch.pop("data"),
        lambda batch, key: batch.pop(key),
        lambda batch, key: batch.update(data=[1, 2]),
        lambda batch, key: batch.update(data=numpy.zeros((EACH, 3071), numpy.uint8)),
        lambda batch, key: batch.update({key: ["cat"] * EACH}),
    ],
)
def test_a_wrong_batch_is_refused(tmp_path, name, batches, contents, change):
    test, key = LAYOUTS[name][3:5]
    change(batches[test], key)
    write_archive(tmp_path, name, {**contents, test: as_python2(batches[test])})
    with pytest.raises(DataError, match=rf"{test} in .* should hold `data`, an array \(n, 3072\), and `{key}`, a list"):
        data.load(name, tmp_path, download=False)


def test_a_missing_member_is_named(tmp_path, name, contents):
    archive, folder, _, test, *_ = LAYOUTS[name]
    contents.pop(test)
    write_archive(tmp_path, name, contents)
    with pytest.raises(DataError, match=f"Missing: {test}"):
        data.load(name, tmp_path, download=False)
    (tmp_path / archive).unlink()
    (tmp_path / folder).mkdir()
    with pytest.raises(DataError, match="Unpack the archive again"):
        data.load(name, tmp_path, download=False)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_an_incomplete_archive_is_refused(tmp_path, name, contents, share):
    write_archive(tmp_path, name, contents)
    archive = tmp_path / LAYOUTS[name][0]
    archive.write_bytes(archive.read_bytes()[: int(share * archive.stat().st_size)])
    with pytest.raises(DataError, match=LAYOUTS[name][0]):
        data.load(name, tmp_path, download=False)


def test_checking_finds_an_archive_that_is_not_official(tmp_path, name, contents):
    write_archive(tmp_path, name, contents)
    check = data.check(name, tmp_path)
    assert check.problems == (
        f"{tmp_path / LAYOUTS[name][0]} is not the official file: its md5 should be "
        f"{DATASETS[name].format.downloads[0].md5}. Remove it and fetch it again.",
    )


def test_real_images_are_read(name, real_file):
    arrays = data.load(name, real_file(f"{name}.npz"), download=False)
    assert arrays.x_train.shape[1:] == arrays.x_test.shape[1:] == (3, 32, 32)
    assert len(arrays.x_train) >= 12_800
    assert arrays.y_train.unique().tolist() == arrays.y_test.unique().tolist() == list(range(arrays.num_classes))
    assert (arrays.x_train.min(), arrays.x_train.max()) == (0, 1)
    assert 0.4 < arrays.x_train.mean() < 0.55


@pytest.mark.parametrize("number", range(1, 6))
def test_all_five_training_batches_are_needed(tmp_path, number):
    folder = tmp_path / LAYOUTS["cifar10"][1]
    folder.mkdir()
    for member, batch in batches_of("cifar10").items():
        (folder / member).write_bytes(pickle.dumps(batch, protocol=4))
    (folder / f"data_batch_{number}").unlink()
    with pytest.raises(DataError, match=f"data_batch_{number}'. Unpack the archive again"):
        data.load("cifar10", tmp_path, download=False)


def test_the_instructions_name_the_archive_the_folder_and_the_npz_file(tmp_path, name):
    remedy = data.describe(name, tmp_path).remedy
    assert all(file in remedy for file in (*LAYOUTS[name][:2], f"{name}.npz"))


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path, protocol):
    content = pickle.dumps({"data": Malicious(tmp_path / "mark")}, protocol=protocol)
    with pytest.raises(DataError, match="train should be a pickle of .* it imports .*system"):
        read_pickle(content, "train")
    assert not (tmp_path / "mark").exists()
    pickle.loads(content)
    assert (tmp_path / "mark").exists()  # a plain unpickler runs it


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(V1\ntR.",
        b"cnumpy\nload\n(V/etc/hostname\ntR.",
        b"cnumpy.core.multiarray\nfrombuffer\n(tR.",
        b"cnumpy\nndarray.tofile\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"cheldin.lab.data.cifar\nPickledArray\n.",
    ],
)
def test_nothing_but_the_parts_of_an_array_can_be_imported(content):
    with pytest.raises(DataError, match="it imports"):
        read_pickle(content, "train")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_of_bytes_are_restored(protocol, order):
    array = numpy.arange(24, dtype=numpy.uint8).reshape(4, 6).copy(order=order)
    read = read_pickle(pickle.dumps({"data": array, "labels": [1, 2], "name": "x"}, protocol=protocol), "train")
    assert isinstance(read["data"], PickledArray)
    assert numpy.array_equal(read["data"].array, array)
    assert (read["labels"], read["name"]) == ([1, 2], "x")


@pytest.mark.parametrize("kind", ["f8", "i4", "O", "V3", "S2", "u1,u1"])
def test_arrays_of_other_types_are_refused(kind):
    with pytest.raises(DataError, match="not of bytes"):
        read_pickle(pickle.dumps(numpy.zeros(3, dtype=kind), protocol=4), "train")


def test_an_array_of_the_wrong_length_is_refused():
    content = pickle.dumps(numpy.zeros(200, dtype=numpy.uint8), protocol=3)
    shorter = content.replace(bytes(200), bytes(199)).replace(b"C\xc8", b"C\xc7")
    with pytest.raises(DataError, match="has 199 of them"):
        read_pickle(shorter, "train")


@pytest.mark.parametrize("content", [b"", b"\x80", b"not a pickle", b"(lp0\n", b"\x80\x04N", b"\xff" * 20])
def test_a_broken_pickle_is_refused(content):
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(content, "train")
