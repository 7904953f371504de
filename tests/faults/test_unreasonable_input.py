"""Input of an unreasonable size or form is refused at once: one message, exit code 2, nothing written or allocated."""

import gzip
import io
import resource
import struct
import tarfile
import time
import zipfile
from types import SimpleNamespace

import numpy
import pytest
from tests.faults.commands import write_data

from heldin.cli.main import main
from heldin.errors import DataError
from heldin.lab.data.idx import read_idx
from heldin.lab.memory import format_bytes, total_memory

LONG = "a" * 5000
DIGITS = "9" * 5000
RUN = ("run", "--dataset", "npz:tiny", "--data", ".", "--batch-size", "6", "--epochs", "1", "--jobs", "1")
MAX_SECONDS = 20
MAX_MEMORY = 300e6  # bytes, to read a dataset and to build a message


@pytest.fixture
def refuse(capsys, tmp_path, monkeypatch):
    """Run the command in a folder; return its message after checking that it was refused, and how."""
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELDIN_DATA", raising=False)

    def call(*arguments):
        files = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        code = main([str(argument) for argument in arguments])
        seconds = time.process_time() - start
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
        found = capsys.readouterr()
        assert code == 2, found
        assert found.out == ""
        assert "Traceback" not in found.err
        assert len(found.err) < 2 * len(LONG)
        assert seconds < MAX_SECONDS
        assert grown < MAX_MEMORY
        assert sorted(tmp_path.rglob("*")) == files
        return " ".join(found.err.split())

    return call


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(("--folds", 10**12), "at most 10,000 runs. Found 1,000,000,000,000", id="folds"),
        pytest.param(("--fold", 0, "--folds", 10**12), "There should be at most 24 folds", id="one fold"),
        pytest.param(("--seeds", "0-999999999999"), "at most 10,000 runs. Found 1,000,000,000,000", id="seeds"),
        pytest.param(("--seeds", f"0-{DIGITS}"), "--seeds should be a range or a list", id="seeds of 5,000 digits"),
        pytest.param(("--seeds", "0-5000,0-5000"), "at most 10,000 runs. Found 10,002", id="seeds twice"),
        pytest.param(("--seeds", "0-999", "--folds", 20), "at most 10,000 runs. Found 20,000", id="seeds and folds"),
        pytest.param(("--scale", 1e9), "`scale` should give a layer at most 1,000,000", id="scale"),
        pytest.param(("--scale", 1e300), "`scale` should give a layer at most 1,000,000", id="scale of 301 digits"),
        pytest.param(("--scale", 1999), "should fit into the memory of this machine", id="scale, by memory"),
        pytest.param(("--scale", "inf"), "`scale` should be a finite number", id="infinite scale"),
        pytest.param(("--learning-rate", "nan"), "`learning_rate` should be a finite number", id="NaN"),
        pytest.param(("--epochs", DIGITS), "Invalid value for '--epochs'", id="epochs of 5,000 digits"),
        pytest.param(("--epochs", 2**63), "`epochs` should be an integer below 2**63", id="epochs"),
        pytest.param(("--seed", 10**400), "Found `seed = an integer of 1329 bits`", id="seed of 400 digits"),
        pytest.param(("--batch-size", 2**62), "`batch_size` should be at most", id="batch size"),
        pytest.param(("--jobs", 10**9), "`--jobs` should be at most 1024", id="jobs"),
        pytest.param(("--wait", "nan"), "`--wait` should be a finite number", id="wait"),
        pytest.param(("--dataset", LONG), "`dataset` should be a name of at most 200", id="dataset"),
        pytest.param(("--dataset", f"npz:{LONG}"), "`dataset` should be a name of at most 200", id="npz"),
        pytest.param(("--dataset", "npz:" + "\U0001f600" * 60), "at most 200", id="npz of 240 bytes"),
        pytest.param(("--dataset", "npz:~root"), "should not contain a path", id="npz, home of a user"),
        pytest.param(("--dataset", "npz:../../etc/passwd"), "should not contain a path", id="npz, another folder"),
        pytest.param(("--dataset", "npz:a\nb"), "Found `dataset = 'npz:a\\nb'`", id="npz, line end"),
        pytest.param(("--dataset", "npz:\udcff"), "Found `dataset = 'npz:\\udcff'`", id="npz, not UTF-8"),
        pytest.param(("--model", LONG), "`model` should be one of", id="model"),
        pytest.param(("--model", f"{LONG}:build"), "`model` should be a name of at most 200", id="model of a user"),
        pytest.param(("--signal", LONG), "A signal should be a label", id="signal"),
        pytest.param(("--signal", f"cosine@s={DIGITS}"), "A signal should be a label", id="signal, batches"),
        pytest.param(("--store", LONG), "File name too long", id="store"),
        pytest.param(("--dataset", "mnist", "--data", LONG), "The data folder should exist", id="data"),
        pytest.param(("--dataset", "mnist", "--data", "misspelt"), "Found no folder misspelt", id="data, misspelt"),
        pytest.param(("--dataset", "mnist", "--data", "~nobody-here"), "should exist", id="data, unknown user"),
        pytest.param(("--dataset", "npz:mine", "--data", "misspelt"), "is not in misspelt", id="npz, misspelt folder"),
        pytest.param((f"{LONG}.toml",), "should be a TOML file", id="file"),
        pytest.param(("/dev/zero",), "It is larger than 1,000,000 bytes", id="endless file"),
    ],
)
def test_options_are_refused(refuse, flags, words):
    assert words in refuse(*RUN, *flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("epochs = " + "[" * 20_000, "nested too deeply", id="lists"),
        pytest.param("epochs = " + "{a = " * 20_000, "nested too deeply", id="tables"),
        pytest.param(f"epochs = {DIGITS}", "should be a TOML file", id="5,000 digits"),
        pytest.param(f"epochs = {DIGITS[:4000]}", "`epochs = an integer of 13288 bits`", id="4,000 digits"),
        pytest.param(f"scale = {DIGITS[:4000]}", "`scale = an integer of 13288 bits`", id="4,000 digits for a number"),
        pytest.param(f"label_noise = -{DIGITS[:400]}", "`label_noise` should be a finite number", id="400 digits"),
        pytest.param("scale = 1e999", "`scale` should be a finite number", id="infinite"),
        pytest.param("#" * 2_000_000, "larger than 1,000,000 bytes", id="2 MB"),
        pytest.param('dataset = "digits"\n' + "[[run]]\n" * 20_000, "at most 10,000 runs", id="20,000 runs"),
        pytest.param("folds = 1_000_000_000_000", "at most 10,000 runs", id="folds"),
        pytest.param('dataset = "npz:\\u0000"', "should be a name", id="null character"),
        pytest.param("signals = 5", "should be a list of labels. Found `signals = 5`", id="signals, a number"),
        pytest.param(f'signals = "{LONG}"', "should be a list of labels", id="signals, a text"),
        pytest.param(f'"{LONG}" = 1', "A spec has no 'aaa", id="name of a field"),
        pytest.param(f'augment = "{LONG}"', "`augment` should be True or False", id="long value"),
        pytest.param(f'run = ["{LONG}"]', "should list its runs as [[run]]", id="run"),
        pytest.param("\x00\x01\x02", "should be a TOML file", id="bytes"),
    ],
)
def test_files_with_specs_are_refused(refuse, tmp_path, text, words):
    (tmp_path / "spec.toml").write_text(text)
    assert words in refuse("run", "spec.toml")


def npz(shape, dtype="<f8", version=b"\x01\x00"):
    """An archive whose first array claims this shape; its other arrays are small."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    length = struct.pack("<H", len(header)) if version == b"\x01\x00" else struct.pack("<I", len(header))
    content = io.BytesIO()
    numpy.savez(content, y_train=numpy.arange(4) % 2, x_test=numpy.zeros((4, 2)), y_test=numpy.arange(4) % 2)
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("x_train.npy", b"\x93NUMPY" + version + length + header.encode() + bytes(64))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(npz((2**30, 4608)), "should fit into the memory of this machine", id="36 TiB"),
        pytest.param(npz((2**30, 4608), version=b"\x02\x00"), "should fit into the memory", id="36 TiB, version 2"),
        pytest.param(npz((2**62, 2**62)), "should fit into the memory of this machine", id="overflow"),
        pytest.param(npz((10**4000,), dtype="|u1"), "Found more than 1,000,000,000 TB", id="4,000 digits"),
        pytest.param(npz((1000, 2)), "cannot be read as .npz", id="1,000 rows, of which 4 exist"),
        pytest.param(npz((-4, -2)), "cannot be read as .npz", id="negative"),
        pytest.param(npz((4, 2), dtype="|O"), "cannot be read as .npz", id="objects"),
        pytest.param(npz((4, 2), version=b"\x09\x09"), "cannot be read as .npz", id="unknown version"),
        pytest.param(npz("(" * 500), "cannot be read as .npz", id="nested"),
    ],
)
def test_arrays_are_refused(refuse, tmp_path, content, words):
    (tmp_path / "mine.npz").write_bytes(content)
    assert words in refuse("run", "--dataset", "npz:mine", "--data", tmp_path)
    assert words in str(refuse_check(tmp_path))


def refuse_check(root):
    """The message of the library, without the command."""
    from heldin.lab.data import load

    with pytest.raises(DataError) as error:
        load("npz:mine", root)
    return error.value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("data", "fetch", "mnist", "--data", "misspelt"), "Found no folder misspelt", id="fetch"),
        pytest.param(("data", "check", "npz:\udcff"), "should name a file after 'npz:'", id="check, not UTF-8"),
        pytest.param(("data", "fetch", LONG), "`dataset` should be one of", id="fetch, name"),
        pytest.param(("replay", "numbers.txt"), "at most 1,000 characters", id="replay, endless file"),
        pytest.param(("replay", LONG), "File name too long", id="replay, name"),
        pytest.param(("replay", "--store", LONG), "There are no records in", id="replay, store"),
        pytest.param(("table", "--store", LONG), "There are no records in", id="table, store"),
        pytest.param(("status", "--seed", DIGITS), "Invalid value for '--seed'", id="status, seed"),
    ],
)
def test_other_commands_refuse(refuse, tmp_path, monkeypatch, arguments, words):
    monkeypatch.setattr("heldin.cli.replay.MAX_CHARACTERS", 1000)
    (tmp_path / "numbers.txt").write_text("1 " * 1000)
    assert words in refuse(*arguments)


@pytest.mark.parametrize("name", [f"npz:{LONG}", "npz:~nobody-here", "npz:~root"])
def test_a_file_that_cannot_exist_is_reported_as_missing(capsys, name):
    assert main(["data", "check", name]) == 2
    assert "is not in" in capsys.readouterr().out


def test_an_idx_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("heldin.lab.data.idx.MAX_BYTES", 10**6)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(10**8), 1))
    with pytest.raises(DataError, match="should hold at most 1 MB"):
        read_idx(path, num_dimensions=3)


def test_an_archive_that_claims_too_much_is_refused(refuse, tmp_path):
    content = io.BytesIO()
    entry = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    entry.size = 9 * 10**12
    content.write(entry.tobuf())
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(content.getvalue()))
    assert "Found 9 TB" in refuse("run", "--dataset", "cifar10", "--data", tmp_path)


def test_the_memory_of_the_machine_is_known_or_assumed(monkeypatch):
    assert 10**8 < total_memory() < 10**15
    monkeypatch.setattr("heldin.lab.memory.os", SimpleNamespace())
    assert total_memory() == 2**40


@pytest.mark.parametrize(
    ("num", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (12_345, "12.3 kB"),
        (999_999, "1 MB"),
        (10**13, "10 TB"),
        (10**18, "1,000,000 TB"),
        (10**4000, "more than 1,000,000,000 TB"),
    ],
)
def test_bytes_are_formatted(num, words):
    assert format_bytes(num) == words
