"""Two commands on the same runs at the same time: one record of each run, and messages that are true."""

import os
import platform
import time
from pathlib import Path

import pytest
from tests.faults.commands import SPECS, assert_complete, run_arguments, wait_until

from heldin.lab.store import Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@pytest.mark.parametrize("shared", [False, True], ids=["one folder", "one folder under two names"])
def test_two_commands_complete_each_run_once_and_both_say_that_it_is_done(server, undisturbed, folder, shared):
    other = "heldin-runs"
    if shared:
        other = "mounted"
        (folder / "heldin-runs").mkdir()
        (folder / other).symlink_to(folder / "heldin-runs", target_is_directory=True)
    commands = [run_arguments(store=store) for store in ("heldin-runs", other)]
    for finished in [server.finish(started) for started in [server.start(folder, *command) for command in commands]]:
        assert finished.code == 0, finished.printed
        assert "2 runs done" in finished.printed
    assert_complete(folder, SPECS, undisturbed[0])
    for spec in SPECS:
        timings = (Store(folder / "heldin-runs").folder(spec).path / "timings.jsonl").read_text()
        assert timings.count('"begun"') == 1


def test_a_command_that_does_not_wait_names_the_run_and_the_process_and_fails(server, undisturbed, folder):
    with Store(folder / "heldin-runs").folder(SPECS[0]).locked():
        finished = server.run(folder, *run_arguments(), "--wait", 0)
        assert finished.code == 2
        holder = f"process {os.getpid()} on {platform.node()}"
        assert f"  {SPECS[0].id}: {holder} is working on it." in finished.printed
        assert "1 of 2 runs could not be completed; the others are done." in finished.printed
        assert " runs done." not in finished.printed
    assert Store(folder / "heldin-runs").record(SPECS[1]).done
    assert server.run(folder, *run_arguments()).code == 0
    assert_complete(folder, SPECS, undisturbed[0])


def test_a_command_waits_for_the_other_process_and_says_so_in_one_line(server, undisturbed, folder):
    with Store(folder / "heldin-runs").folder(SPECS[0]).locked():
        started = server.start(folder, *run_arguments(), "--quiet")
        wait_until(lambda: "Waiting" in Path(started[1]).read_text())
        time.sleep(1.5)  # long enough for more lines
    finished = server.finish(started)
    assert finished.code == 0, finished.printed
    [line] = [line for line in finished.printed.splitlines() if "Waiting" in line]
    assert line.startswith(f"Waiting for process {os.getpid()} on {platform.node()}, which is working on 1 run: ")
    assert_complete(folder, SPECS, undisturbed[0])
