"""Running the study: trials, the file of chosen settings, and the command line."""

import json

import pytest

from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from study import commands, running
from study.results import bundled_ids
from study.running import chosen_settings, recorded_trials, run_trials, write_chosen
from study.settings import Slot

SLOT = Slot(
    RunSpec(
        dataset="digits",
        num_samples=300,
        label_noise=0.3,
        model="mlp",
        scale=0.5,
        optimizer="adam",
        learning_rate=0.0005,
        batch_size=16,
        seed=1000,
        signals=(),
    ),
    (5, 15),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("study"))
    run_trials(store, jobs=1, data_root=None, slots=[SLOT])
    return store


@pytest.fixture
def one_slot(monkeypatch, tmp_path):
    """The study with a single slot."""
    monkeypatch.setattr(running, "SLOTS", (SLOT,))
    monkeypatch.setattr(commands, "SLOTS", (SLOT,))
    return tmp_path / "chosen.json"


def test_trials_of_a_slot_are_run_until_one_passes(store):
    found = recorded_trials(SLOT, store)
    assert len(found) > 1
    assert found[-1].passes
    assert 5 <= found[-1].learning.best <= 15
    assert all(trial.spec.epochs == 45 for trial in found)


def test_the_chosen_settings_are_written_with_their_trials(store, one_slot):
    assert chosen_settings(one_slot) == {}
    assert write_chosen(store, one_slot) == 0
    last = recorded_trials(SLOT, store)[-1]
    assert chosen_settings(one_slot) == {SLOT.name: last.setting}
    (entry,) = json.loads(one_slot.read_text())
    assert entry["trials"][-1]["learning_rate"] == last.spec.learning_rate
    assert entry["trials"][-1]["fails"] == []


def test_a_slot_without_trials_is_not_written(one_slot, tmp_path):
    assert write_chosen(Store(tmp_path), one_slot) == 1
    assert json.loads(one_slot.read_text()) == []


def test_the_list_shows_what_the_rule_decided(store, one_slot, monkeypatch, capsys):
    assert commands.main(["list", "--store", str(store.root)]) == 0
    shown = capsys.readouterr()
    assert SLOT.name in shown.out
    assert "passes" in shown.out


def test_missing_data_is_refused_before_any_run(tmp_path, monkeypatch):
    slot = Slot(SLOT.spec.with_(dataset="npz:absent"), (2, 5))
    monkeypatch.setattr(running, "SLOTS", (slot,))
    with pytest.raises(Exception, match="absent"):
        run_trials(Store(tmp_path), jobs=1, data_root=tmp_path, slots=[slot])
    assert not (tmp_path / "runs").exists()


def test_the_list_counts_bundled_trials_and_runs(tmp_path, capsys):
    assert commands.main(["list", "--store", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("passes") == len(chosen_settings())
    num = len(bundled_ids())
    assert num > 300
    assert f"{num} of their" in shown.err


def test_bundled_runs_are_not_run_again(store, monkeypatch, tmp_path):
    setting = SLOT.spec.with_(seed=0, epochs=2)
    monkeypatch.setattr(running, "chosen_settings", lambda: {"slot": setting})
    specs = running.study_runs([setting])
    finished = {spec.id for spec in specs[1:]}
    new = Store(tmp_path)
    assert running.run_study(new, jobs=1, data_root=None, quiet=True, finished=finished) == 1
    assert [spec.id for spec in specs if new.folder(spec).done] == [specs[0].id]
