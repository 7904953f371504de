"""Missing runs are run once. Runs that are bundled or finished in the store are not run again."""

import pytest
from tests.records import epoch_line

from heldin.errors import StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from paper.harness.running import bundle_runs, collect_runs, missing_runs, plan_rows, run_specs

SPEC = RunSpec(dataset="digits", epochs=2, signals=("cosine",))
LINES = tuple(epoch_line(SPEC, epoch) for epoch in (0, 1))


def test_shared_runs_are_run_once_and_not_again(paper, items, store):
    assert len(list((store / "runs").iterdir())) == 2
    assert missing_runs(paper, items, "laptop", store) == []
    assert len(missing_runs(paper, items, "paper", store)) == 2
    assert [spec.seed for spec in missing_runs(paper, items, "paper", store, seeds=[1])] == [1]


def test_bundled_runs_are_not_run_again(paper, items, store, tmp_path):
    before = collect_runs(paper, items, "laptop", store)
    assert bundle_runs(paper, "laptop", store) == 2
    elsewhere = tmp_path / "elsewhere"
    assert not missing_runs(paper, items, "laptop", elsewhere)
    assert len(missing_runs(paper, items, "laptop", elsewhere, bundled=False)) == 2
    after = collect_runs(paper, items, "laptop")
    assert [record.epochs for record in after.records] == [record.epochs for record in before.records]
    assert after.unit_seconds == before.unit_seconds
    files = {path: path.read_bytes() for path in paper.results("laptop").iterdir()}
    (elsewhere / "runs").mkdir(parents=True)
    assert bundle_runs(paper, "laptop", elsewhere) == 2  # no bundled run is lost
    assert {path: path.read_bytes() for path in paper.results("laptop").iterdir()} == files


@pytest.mark.parametrize("change", ["missing", "", "\n\n"])
def test_missing_or_empty_bundled_records_are_refused(paper, items, store, change):
    bundle_runs(paper, "laptop", store)
    (file,) = paper.results("laptop").iterdir()
    file.unlink() if change == "missing" else file.write_text(change)
    with pytest.raises(StoreError, match=rf"tab:tiny should have finished runs .*Found none of {file.name}.*paper run"):
        collect_runs(paper, items, "laptop", damaged=lambda error: None)
    assert len(collect_runs(paper, items, "laptop", store, damaged=lambda error: None).records) == 2


def test_a_store_without_runs_has_nothing_to_bundle(paper, tmp_path):
    with pytest.raises(StoreError, match=r"no runs to bundle in .*typo"):
        bundle_runs(paper, "laptop", tmp_path / "typo")


def test_an_interrupted_run_is_resumed(paper, items, store):
    spec = items[0].specs("laptop")[1]
    file = Store(store).folder(spec).path / "epochs.jsonl"
    lines = file.read_bytes()
    (file.parent / "done.json").unlink()
    missing = missing_runs(paper, items, "laptop", store)
    assert missing == [spec]
    assert len(collect_runs(paper, items, "laptop", store).records) == 1
    run_specs(paper, missing, store, quiet=True)
    assert file.read_bytes() == lines


def test_the_plan_counts_shared_runs_once(paper, items, store, tmp_path):
    rows = plan_rows(paper, items, "laptop", tmp_path / "empty")
    assert [tuple(row.values()) for row in rows] == [
        ("tab:tiny", 2, 2, 2, 1.0, "Errors are high."),
        ("fig:same", 2, 2, 0, 0.0, "The same runs, drawn."),
        ("all", 2, 2, 2, 1.0, None),
    ]
    assert [row["missing"] for row in plan_rows(paper, items, "laptop", store)] == [0, 0, 0]
