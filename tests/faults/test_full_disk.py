"""A disk that becomes full at any size: one sentence with what to do, exit code 2, and the same command continues."""

import os
import shutil
import subprocess

import pytest
from tests.faults.commands import SPECS, assert_complete, assert_truthful, run_arguments

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def assert_explained(finished):
    assert finished.code == 2, finished.printed
    assert "Traceback" not in finished.printed
    assert "cannot be written: " in finished.printed
    assert "What was recorded before is safe. Make room, or choose another folder with --store" in finished.printed
    for internal in ("basic_ios", "enforce fail", "PytorchStreamWriter"):
        assert internal not in finished.printed


@pytest.mark.parametrize("limit", [100, 400, 700, 4000])
def test_a_limit_on_the_size_of_files_is_explained_and_the_command_continues(server, undisturbed, folder, limit):
    assert_explained(server.run(folder, *run_arguments(), file_limit=limit))
    assert_truthful(folder, SPECS, undisturbed[0])
    finished = server.run(folder, *run_arguments())
    assert finished.code == 0, finished.printed
    assert_complete(folder, SPECS, undisturbed[0])


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a disk of some kilobytes, or changes its size."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = []

    def mount(size):
        options = f"size={size}k" if not mounted else f"remount,size={size}k"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount a tmpfs")
        mounted.append(disk)
        return disk

    yield mount
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 64])
def test_a_full_disk_is_explained_and_the_command_continues(server, undisturbed, folder, small_disk, size):
    store = small_disk(size)
    finished = server.run(folder, *run_arguments(store=store))
    if finished.code != 0:
        assert_explained(finished)
        assert_truthful(folder, SPECS, undisturbed[0], store)
        small_disk(10_000)
        finished = server.run(folder, *run_arguments(store=store))
    assert finished.code == 0, finished.printed
    assert_complete(folder, SPECS, undisturbed[0], store)
