"""Downloads from a local server that works, fails or is gone; the data folder."""

import gzip
import hashlib
import io
import os
import socket
import struct
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import pytest

from heldin.errors import DataError
from heldin.lab import data
from heldin.lab.data import DATASETS, data_root
from heldin.lab.data.files import Download, download, first_existing, md5_of
from heldin.lab.data.idx import idx_files
from heldin.lab.data.registry import MNIST_FILES

CONTENT = bytes(range(256)) * 2000  # several chunks long
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        manner, _, name = self.path[1:].partition("/")
        content = self.server.files.get(name, CONTENT)
        if manner == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        if manner != "unsized":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if manner == "wrong":
            content = content[:-1] + b"x"
        if manner in ("truncated", "unsized"):
            content = content[: len(content) // 2]
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def gone():
    """The address of a server that is no longer there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def get(root, *urls):
    return download(Download("folder/file.bin", MD5, urls), root, instructions="put file.bin there.")


def files_below(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_good_file_is_downloaded_and_nothing_else(server, tmp_path):
    assert get(tmp_path, f"{server.url}/good/file.bin") == tmp_path / "folder/file.bin"
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert files_below(tmp_path) == ["folder/file.bin"]


@pytest.mark.parametrize("terminal", [True, False])
def test_there_is_a_progress_bar_on_a_terminal(server, tmp_path, monkeypatch, terminal):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    get(tmp_path, f"{server.url}/good/file.bin")
    assert ("100%" in stream.getvalue()) == terminal


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("truncated", "the connection was interrupted|no connection"),
        ("unsized", f"its md5 is not {MD5}"),
        ("wrong", f"its md5 is not {MD5}"),
        ("missing", "the server answered 404"),
    ],
)
def test_a_bad_file_is_refused_and_leaves_nothing_behind(server, tmp_path, manner, reason):
    url = f"{server.url}/{manner}/file.bin"
    with pytest.raises(
        DataError, match=f"file.bin could not be downloaded. {url}: .*({reason}).* By hand: put file.bin"
    ):
        get(tmp_path, url)
    assert files_below(tmp_path) == []


def test_without_a_connection_the_instructions_are_shown(gone, tmp_path):
    with pytest.raises(DataError, match="no connection. By hand: put file.bin there."):
        get(tmp_path, f"{gone}/file.bin")
    assert files_below(tmp_path) == []


def test_the_next_url_is_tried(server, gone, tmp_path):
    places = [f"{gone}/file.bin", *(f"{server.url}/{manner}/file.bin" for manner in ("missing", "wrong", "good"))]
    get(tmp_path, *places)
    assert md5_of(tmp_path / "folder/file.bin") == MD5
    assert server.asked == ["/missing/file.bin", "/wrong/file.bin", "/good/file.bin"]


def test_when_every_url_fails_each_is_named(server, gone, tmp_path):
    with pytest.raises(DataError) as raised:
        get(tmp_path, f"{gone}/file.bin", f"{server.url}/missing/file.bin")
    assert f"{gone}/file.bin: no connection" in str(raised.value)
    assert f"{server.url}/missing/file.bin: the server answered 404" in str(raised.value)


def test_an_existing_file_is_never_overwritten(server, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin").write_text("mine")
    get(tmp_path, f"{server.url}/good/file.bin")
    assert (tmp_path / "folder/file.bin").read_text() == "mine"
    assert server.asked == []


def test_a_folder_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "folder").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="folder/file.bin cannot be written"):
        get(tmp_path, f"{server.url}/good/file.bin")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="folder/file.bin cannot be written"):
        get(tmp_path, f"{server.url}/good/file.bin")


@pytest.fixture
def small_mnist(server, monkeypatch):
    """MNIST with six images, on the server."""

    def zipped(array):
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        return gzip.compress(head + array.tobytes(), mtime=0)

    images, labels = numpy.ones((6, 28, 28), numpy.uint8), numpy.arange(6, dtype=numpy.uint8)
    arrays = {
        "train-images": images[:4],
        "train-labels": labels[:4],
        "t10k-images": images[4:],
        "t10k-labels": labels[4:],
    }
    files = []
    for file, array in zip(MNIST_FILES, arrays.values(), strict=True):
        content = zipped(array)
        server.files[f"{file.name}.gz"] = content
        files.append(file._replace(gzipped_md5=hashlib.md5(content).hexdigest()))
    small = idx_files(files, [f"{server.url}/good"], npz="mnist.npz", shape=(1, 28, 28), num_classes=10)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], format=small))
    return small.downloads


def test_loading_downloads_what_is_missing_once(server, small_mnist, tmp_path):
    for _ in range(2):
        arrays = data.load("mnist", tmp_path)
        assert arrays.y_train.tolist() == [0, 1, 2, 3]
    assert len(server.asked) == 4
    assert data.describe("mnist", tmp_path).path == tmp_path / "MNIST/raw"
    assert files_below(tmp_path) == sorted(file.path for file in small_mnist)


def test_loading_with_download_false_downloads_nothing(server, small_mnist, tmp_path):
    with pytest.raises(DataError, match="`heldin data fetch mnist` downloads it"):
        data.load("mnist", tmp_path, download=False)
    assert server.asked == []


def test_an_interrupted_fetch_is_continued(server, small_mnist, tmp_path):
    last = small_mnist[-1]
    content = server.files.pop(last.path.split("/")[-1])  # now a file with another checksum
    with pytest.raises(DataError, match="By hand: put train-images-idx3-ubyte.gz, .* into .*/MNIST/raw, or mnist.npz"):
        data.fetch("mnist", tmp_path)
    assert len(files_below(tmp_path)) == 3
    server.files[last.path.split("/")[-1]] = content
    data.fetch("mnist", tmp_path)
    assert len(server.asked) == 5
    assert data.load("mnist", tmp_path).y_test.tolist() == [4, 5]


def test_fetching_a_present_dataset_sends_no_request(server, small_mnist, tmp_path):
    data.fetch("mnist", tmp_path)
    server.asked.clear()
    assert data.fetch("mnist", tmp_path) == (tmp_path / "MNIST/raw",)
    assert server.asked == []


def test_the_first_existing_file_is_returned(tmp_path):
    assert first_existing(tmp_path, "folder", "file") is None
    (tmp_path / "file").touch()
    assert first_existing(tmp_path, "folder", "file") == tmp_path / "file"
    (tmp_path / "folder").mkdir()
    assert first_existing(tmp_path, "folder", "file") == tmp_path / "folder"


def test_the_argument_comes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root(str(tmp_path / "argument")) == tmp_path / "argument"


def test_the_variable_comes_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HELDIN_DATA", str(tmp_path))
    assert data_root() == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_the_default_data_folder_is_the_users_cache_folder(value, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HELDIN_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("HELDIN_DATA", value)
    assert data_root().name == "heldin"
    assert not data_root().exists()  # nothing is created


def test_a_tilde_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))  # on Windows
    assert data_root("~/data") == tmp_path / "data"


def test_a_file_is_refused_as_data_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="should be a folder. Found the file"):
        data_root(tmp_path / "file")
