"""Workers that die: the run that they die on is found, given up and named; the others are completed."""

import signal

import pytest
from tests.faults.commands import SPEC, SPECS

from heldin.errors import HeldinError
from heldin.lab.engine import MAX_DEATHS, _Deaths, run_all
from heldin.lab.store import Store

DYING_MODEL = """
import os
import signal

import torch


def build(shape, num_classes, scale):
    model = torch.nn.Linear(shape[0], num_classes)
    if not model.weight.is_meta:
        os.kill(os.getpid(), signal.SIGKILL)
    return model
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="sends a signal")
@pytest.mark.filterwarnings("ignore:A worker stopped while some jobs were given:UserWarning")
def test_a_run_that_kills_its_worker_is_named_and_the_others_are_completed(folder, monkeypatch):
    (folder / "dying.py").write_text(DYING_MODEL)
    monkeypatch.syspath_prepend(folder)  # also in workers
    dying = SPEC.with_(model="dying:build")
    store = Store(folder / "store")
    with pytest.raises(HeldinError) as error:
        run_all([dying, *SPECS], store, jobs=2, data_root=folder)
    first, *others = str(error.value).splitlines()
    assert first == "1 of 3 runs could not be completed; the others are done."
    [line] = others
    assert line.startswith(f"  {dying.id}: its worker process died {MAX_DEATHS} times in a row without a new epoch")
    assert "Out of memory?" in line
    assert all(store.record(spec).done for spec in SPECS)


@pytest.fixture
def deaths(tmp_path):
    (tmp_path / "started").mkdir()
    return _Deaths(Store(tmp_path), tmp_path / "started")


def start(deaths, *specs):
    for spec in specs:
        (deaths.started / spec.id).touch()


def test_the_second_death_in_a_row_makes_a_suspect_which_is_run_alone_and_given_up_after_the_third(deaths):
    bad, good, waiting = (SPEC.with_(seed=seed) for seed in range(3))
    for _ in range(MAX_DEATHS - 1):
        assert deaths.choose([good, bad, waiting]) == [good, bad, waiting]
        start(deaths, good, bad)  # the third run is not in a worker yet
        assert deaths.count([good, bad, waiting]) == {}
    assert deaths.choose([good, bad, waiting]) == [good]  # it is completed alone
    assert deaths.choose([bad, waiting]) == [bad]
    start(deaths, bad)
    assert [*deaths.count([bad])] == [bad.id]
    assert deaths.choose([waiting]) == [waiting]


def test_a_new_epoch_clears_a_run_of_suspicion(deaths):
    folder = deaths.store.folder(SPEC)
    folder.path.mkdir(parents=True)
    for num in range(5 * MAX_DEATHS):
        (folder.path / "epochs.jsonl").write_text("{}\n" * num)
        assert deaths.choose([SPEC, SPECS[1]]) == [SPEC, SPECS[1]]
        start(deaths, SPEC)
        (folder.path / "epochs.jsonl").write_text("{}\n" * (num + 1))
        assert deaths.count([SPEC, SPECS[1]]) == {}


def test_without_marks_every_run_is_suspected_and_run_alone(deaths):
    for _ in range(MAX_DEATHS - 1):
        deaths.choose(SPECS)
        assert deaths.count(SPECS) == {}
    for spec in SPECS:
        assert deaths.choose(SPECS[SPECS.index(spec) :]) == [spec]
        assert [*deaths.count([spec])] == [spec.id]
