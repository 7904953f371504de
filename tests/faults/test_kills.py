"""kill -9 of the command and of its workers: nothing false is recorded, and the same command again completes it."""

import os
import random
import signal

import pytest
from tests.faults.commands import (
    SPEC,
    SPECS,
    assert_complete,
    assert_truthful,
    records_of,
    run_arguments,
    wait_until,
    write_data,
)

from heldin.lab.store import Store

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="forks, and finds processes in /proc")

QUICK_MOMENTS = 5
MOMENTS = 30


def moments(number, num_operations):
    """Seeded moments: before which of its operations on files the command is killed."""
    return sorted(random.Random(16).sample(range(1, num_operations + 1), number))


@pytest.mark.parametrize(
    "number", [QUICK_MOMENTS, pytest.param(MOMENTS, marks=pytest.mark.slow)], ids=["a few moments", "many moments"]
)
def test_a_command_killed_at_any_operation_on_files_is_continued(server, undisturbed, tmp_path, number):
    expected, num_operations = undisturbed
    for moment in moments(number, num_operations):
        folder = tmp_path / str(moment)
        folder.mkdir()
        write_data(folder)
        assert server.run(folder, *run_arguments(), kill_at=moment).code == -signal.SIGKILL
        assert_truthful(folder, SPECS, expected)
        finished = server.run(folder, *run_arguments())
        assert finished.code == 0, finished.printed
        assert "2 runs done" in finished.printed
        assert_complete(folder, SPECS, expected)


def test_a_command_killed_again_and_again_makes_progress(server, undisturbed, folder):
    expected, num_operations = undisturbed
    codes = []
    while 0 not in codes and len(codes) < 8:
        codes.append(server.run(folder, *run_arguments(), kill_at=num_operations // 2).code)
        assert_truthful(folder, SPECS, expected)
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert len(codes) > 2
    assert_complete(folder, SPECS, expected)


LONG = SPEC.with_(epochs=60)
LONG_SPECS = [LONG.with_(seed=seed) for seed in range(3)]


@pytest.fixture(scope="module")
def undisturbed_long(server, tmp_path_factory):
    """The records of longer runs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_data(folder)
    assert server.run(folder, *run_arguments(LONG_SPECS)).code == 0
    return records_of(folder, LONG_SPECS)


def num_epochs(folder):
    return sum(Store(folder / "heldin-runs").folder(spec).num_epochs for spec in LONG_SPECS)


def workers(folder):
    """The processes that hold the lock of a run."""
    locks = {str(path) for path in folder.rglob("lock")}
    found = []
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            links = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
        except OSError:
            continue
        if links & locks:
            found.append(int(pid))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("moment", sorted(random.Random(17).sample(range(140), 6)))
def test_a_parent_killed_with_two_workers_leaves_none_behind_and_is_continued_at_once(
    server, undisturbed_long, folder, moment
):
    started = server.start(folder, *run_arguments(LONG_SPECS, jobs=2))
    wait_until(lambda: num_epochs(folder) >= moment)
    os.kill(started[0], signal.SIGKILL)
    assert server.finish(started).code == -signal.SIGKILL
    again = server.start(folder, *run_arguments(LONG_SPECS, jobs=2))  # while the workers may still be there
    finished = server.finish(again)
    assert finished.code == 0, finished.printed
    assert "3 runs done" in finished.printed
    assert_complete(folder, LONG_SPECS, undisturbed_long)
    assert workers(folder) == []


@pytest.mark.slow
def test_workers_without_a_parent_exit_within_seconds(server, undisturbed_long, folder):
    started = server.start(folder, *run_arguments(LONG_SPECS, jobs=2))
    wait_until(lambda: len(workers(folder)) == 2)
    os.kill(started[0], signal.SIGKILL)
    server.finish(started)
    wait_until(lambda: workers(folder) == [], seconds=10)
    assert_truthful(folder, LONG_SPECS, undisturbed_long)


@pytest.mark.slow
def test_workers_killed_at_six_moments_are_replaced_and_all_runs_are_completed(server, undisturbed_long, folder):
    started = server.start(folder, *run_arguments(LONG_SPECS, jobs=2))
    for moment in sorted(random.Random(18).sample(range(140), 6)):
        wait_until(lambda moment=moment: num_epochs(folder) >= moment and workers(folder))
        os.kill(random.Random(moment).choice(workers(folder)), signal.SIGKILL)
    finished = server.finish(started)
    assert finished.code == 0, finished.printed
    assert "Traceback" not in finished.printed
    assert_complete(folder, LONG_SPECS, undisturbed_long)
