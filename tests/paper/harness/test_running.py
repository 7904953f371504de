"""Missing runs are run once. Runs that are bundled or finished in the store are not run again."""

from dataclasses import replace

import pytest
from tests.records import epoch_line

from heldin.errors import ArgumentError, DataError, StoreError
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


def test_a_store_without_these_runs_is_refused_if_bundled_records_are_ignored(paper, items, store):
    bundle_runs(paper, "laptop", store)
    with pytest.raises(StoreError, match=r"There are no finished runs of tab:tiny in .*--store-only ignores") as raised:
        collect_runs(paper, items[:1], "paper", store, bundled=False)
    assert "python -m paper run tab:tiny --rerun --profile paper" in str(raised.value)
    assert "git checkout" not in str(raised.value)


def test_runs_that_were_never_bundled_are_not_to_be_restored(paper, items):
    with pytest.raises(StoreError, match="tab:tiny should have finished runs") as raised:
        collect_runs(paper, items, "paper")
    assert "git checkout" not in str(raised.value)


def prepare(folder, root, datasets):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_missing_data_is_missing_in_the_folder_that_was_given(paper, tmp_path):
    given, store = tmp_path / "given", tmp_path / "store"
    with pytest.raises(DataError) as raised:
        run_specs(replace(paper, prepare_data=prepare), [SPEC.with_(dataset="mrnet")], store, data_root=given)
    assert f"is not in {given}." in str(raised.value)
    assert str(store) not in str(raised.value)
    assert not store.exists()


def test_a_data_folder_that_does_not_exist_is_refused_with_the_command_that_fetches(paper, tmp_path):
    given = tmp_path / "typo"
    with pytest.raises(
        DataError, match=r"Create it, or correct --data .*`heldin data fetch mnist --data DIR`"
    ) as raised:
        run_specs(paper, [SPEC.with_(dataset="mnist")], tmp_path / "store", data_root=given)
    assert f"Found no folder {given}." in str(raised.value)


def test_a_refused_run_removes_only_what_it_created(paper, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="num_samples"):
        run_specs(replace(paper, prepare_data=prepare), [SPEC.with_(num_samples=10**6)], store)
    assert [path.name for path in store.iterdir()] == ["mine.txt"]


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
