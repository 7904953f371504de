"""What is missing is run, once; what is kept with the code or in the store is not."""

import pytest

from heldin.errors import StoreError
from heldin.lab.reproducing.running import gathered, keep, missing, plan, run_missing
from heldin.lab.store import Store


def test_shared_runs_are_run_once_and_not_again(paper, items, tmp_path):
    store = tmp_path / "store"
    assert len(missing(paper, items, "laptop", store)) == 2
    assert run_missing(paper, items, "laptop", store, quiet=True) == 2
    assert run_missing(paper, items, "laptop", store, quiet=True) == 0
    assert len(missing(paper, items, "paper", store)) == 2


def test_what_is_kept_with_the_code_is_not_run_again(paper, items, store, tmp_path):
    before = gathered(paper, items, "laptop", store)
    assert keep(paper, "laptop", store) == 2
    elsewhere = tmp_path / "elsewhere"
    assert not missing(paper, items, "laptop", elsewhere)
    after = gathered(paper, items, "laptop")
    assert [record.epochs for record in after.records] == [record.epochs for record in before.records]
    assert after.units == before.units
    files = {path: path.read_bytes() for path in paper.results("laptop").iterdir()}
    (elsewhere / "runs").mkdir(parents=True)
    assert keep(paper, "laptop", elsewhere) == 2  # nothing kept is lost
    assert {path: path.read_bytes() for path in paper.results("laptop").iterdir()} == files


def test_a_store_that_is_none_has_nothing_to_keep(paper, tmp_path):
    with pytest.raises(StoreError, match=r"no runs to keep in .*typo"):
        keep(paper, "laptop", tmp_path / "typo")


def test_a_run_that_was_cut_off_is_gone_on_with(paper, items, store):
    spec = items[0].specs("laptop")[1]
    whole = Store(store).folder(spec).path / "epochs.jsonl"
    lines = whole.read_bytes()
    (whole.parent / "done.json").unlink()
    assert missing(paper, items, "laptop", store) == [spec]
    assert len(gathered(paper, items, "laptop", store).records) == 1
    run_missing(paper, items, "laptop", store, quiet=True)
    assert whole.read_bytes() == lines


def test_the_plan_counts_shared_runs_once(paper, items, store, tmp_path):
    rows = plan(paper, items, "laptop", tmp_path / "empty")
    own = "not shared with those above"
    assert [(row["item"], row["runs"], row["missing"], row[own], row["minutes on two cores"]) for row in rows] == [
        ("tab:tiny", 2, 2, 2, 1.0),
        ("fig:same", 2, 2, 0, 0.0),
        ("all", 2, 2, 2, 1.0),
    ]
    assert [row["missing"] for row in plan(paper, items, "laptop", store)] == [0, 0, 0]
