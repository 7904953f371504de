"""The loop: to the horizon, every signal, and the same records however often it was cut off."""

import math
import multiprocessing
import random
import time

import numpy
import pytest
import torch

from heldin.errors import ArgumentError, StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from heldin.lab.training import run

SPEC = RunSpec(
    dataset="digits",
    num_samples=200,
    label_noise=0.3,
    scale=0.04,
    batch_size=32,
    epochs=6,
    optimizer="adam",
    learning_rate=0.01,
)


def epochs_of(store, spec):
    return (store.folder(spec).path / "epochs.jsonl").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    store = Store(tmp_path_factory.mktemp("whole"))
    run(SPEC, store)
    return store


def test_every_epoch_is_recorded_with_every_signal(whole):
    record = whole.record(SPEC)
    assert record.done
    assert [line["epoch"] for line in record.epochs] == list(range(6))
    assert record.names == list(SPEC.signals)
    for line in record.epochs:
        assert {"train_loss", "train_error", "test_loss", "test_error", "test_top5", "parameter_norm"} <= line.keys()
        assert all(math.isfinite(value) for name, value in line["signals"].items() if name != "label_wave")
    assert record.curve("label_wave")[0] is None
    assert record.curve("train_loss")[-1] < record.curve("train_loss")[0]
    assert not (whole.folder(SPEC).path / "checkpoint.pt").exists()


def test_a_run_that_is_done_is_not_run_again(whole):
    told = []
    assert run(SPEC, whole, on_epoch=told.append) == whole.record(SPEC)
    assert told == []


def test_records_are_a_function_of_the_spec_alone(whole, tmp_path):
    random.seed(7)
    torch.manual_seed(7)
    torch.rand(3)
    run(SPEC, Store(tmp_path))
    assert epochs_of(Store(tmp_path), SPEC) == epochs_of(whole, SPEC)


def test_the_global_streams_go_on_as_if_nothing_had_been_run(tmp_path):
    before = torch.get_rng_state(), random.getstate()
    run(SPEC.with_(epochs=1), Store(tmp_path))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.parametrize("last", range(5))
def test_a_run_cut_off_after_any_epoch_goes_on_to_the_same_records(whole, tmp_path, last):
    store = Store(tmp_path)

    def cut_off(line):
        if line["epoch"] == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SPEC, store, on_epoch=cut_off)
    assert not store.record(SPEC).done
    told = []
    run(SPEC, store, on_epoch=told.append)
    assert [line["epoch"] for line in told] == list(range(last + 1, 6))
    assert epochs_of(store, SPEC) == epochs_of(whole, SPEC)


KILLED = SPEC.with_(signals=("gradient_disparity", "cosine@fixed", "label_wave"), epochs=12)


def _child(root):
    run(KILLED, Store(root))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_killed_at_any_moment_it_goes_on_to_the_same_records(tmp_path):
    """At least 20 kills, each at a moment drawn over the time the work takes; some come before, some after it."""
    context = multiprocessing.get_context("fork")  # which starts at once: half of all kills hit the work itself
    moments, kills, epochs_lost = random.Random(0), 0, []
    run(KILLED, Store(tmp_path / "whole"))
    started = time.perf_counter()
    _begun(context, tmp_path / "first").join()
    length = time.perf_counter() - started
    attempt = 0
    while kills < 20:
        folder = Store(tmp_path / str(attempt)).folder(KILLED)
        while not folder.done:
            before = len(folder.lines())
            process = _begun(context, tmp_path / str(attempt))
            process.join(moments.uniform(0.2, 1.0) * length)
            if process.is_alive():
                process.kill()
                kills += 1
                epochs_lost.append(before - len(folder.lines()))
            process.join()
        assert epochs_of(Store(tmp_path / str(attempt)), KILLED) == epochs_of(Store(tmp_path / "whole"), KILLED)
        attempt += 1
    assert max(epochs_lost) <= 1


def _begun(context, root):
    process = context.Process(target=_child, args=(root,))
    process.start()
    return process


@pytest.mark.parametrize("half", ["line", "checkpoint", "both"])
def test_what_a_crash_left_half_written_is_computed_again(whole, tmp_path, half):
    store = Store(tmp_path)

    def cut_off(line):
        if line["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SPEC, store, on_epoch=cut_off)
    folder = store.folder(SPEC).path
    if half in ("line", "both"):
        with (folder / "epochs.jsonl").open("a") as file:
            file.write('{"epoch":4,"train_lo')
    if half in ("checkpoint", "both"):
        (folder / "checkpoint.pt").write_bytes((folder / "checkpoint.pt").read_bytes()[:100])
    run(SPEC, store)
    assert epochs_of(store, SPEC) == epochs_of(whole, SPEC)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "weight_decay": 0.01},
        {"loss": "mse"},
        {"init": "he_normal", "optimizer": "momentum"},
        {"fold": 1, "folds": 4},
        {"dataset": "breast_cancer"},
        {"signals": ("evidence_based", "gsnr", "class_alignment", "stiffness", "coherence", "diversity")},
        {"signals": ("optimization_variance", "susceptibility", "prediction_variance", "label_wave@fixed")},
        {"signals": ()},
        {"batch_size": 150},
        {"batch_size": 199},
        {"batch_size": 1, "num_samples": 60, "signals": ("gradient_disparity[rescale=pooled_std]",)},
    ],
    ids=str,
)
def test_every_kind_of_run_can_be_resumed(tmp_path, changes):
    spec = SPEC.with_(epochs=2, **changes)
    run(spec, Store(tmp_path / "whole"))

    def cut_off(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, Store(tmp_path / "parts"), on_epoch=cut_off)
    run(spec, Store(tmp_path / "parts"))
    assert epochs_of(Store(tmp_path / "parts"), spec) == epochs_of(Store(tmp_path / "whole"), spec)


def test_a_fold_is_validated_on_what_it_left_out(tmp_path):
    (line,) = run(SPEC.with_(epochs=1, fold=0, folds=4), Store(tmp_path)).epochs
    assert {"val_loss", "val_error"} <= line.keys()


def test_signals_on_more_batches_and_against_the_fold_left_out(tmp_path):
    signals = ("gradient_disparity", "gradient_disparity@s=2", "gradient_disparity@s=9", "train_val_disparity")
    spec = SPEC.with_(epochs=1, fold=0, folds=4, batch_size=16, signals=signals)
    (line,) = run(spec, Store(tmp_path)).epochs
    assert len({*line["signals"].values()}) == 4
    assert all(value > 0.0 for value in line["signals"].values())


def test_images_can_be_augmented(tmp_path):
    spec = RunSpec(dataset="mnist5k", num_samples=64, scale=0.02, batch_size=16, epochs=1)
    plain, augmented = (run(spec.with_(augment=flag), Store(tmp_path)).epochs[0] for flag in (False, True))
    assert plain["train_loss"] != augmented["train_loss"]


def test_the_horizon_may_be_a_training_loss(tmp_path):
    record = run(SPEC.with_(epochs=50, until_loss=2.0, signals=()), Store(tmp_path))
    losses = record.curve("train_loss")
    assert losses[-1] < 2.0
    assert all(loss >= 2.0 for loss in losses[:-1])
    assert len(losses) < 50


def test_a_horizon_reached_just_before_a_crash_is_not_overrun(tmp_path):
    spec = SPEC.with_(epochs=50, until_loss=2.0, signals=())
    expected = len(run(spec, Store(tmp_path / "whole")).epochs)
    told = []

    def cut_off(line):
        told.append(line)
        if len(told) == expected:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, Store(tmp_path / "parts"), on_epoch=cut_off)
    assert len(run(spec, Store(tmp_path / "parts")).epochs) == expected


def test_training_that_diverges_is_recorded_to_the_end(tmp_path):
    record = run(SPEC.with_(optimizer="sgd", learning_rate=1e6, loss="mse", epochs=4), Store(tmp_path))
    assert len(record.epochs) == 4
    assert not math.isfinite(record.curve("train_loss")[-1])


def test_seconds_stand_in_a_file_of_their_own(whole):
    lines = whole.folder(SPEC).lines("timings.jsonl")
    assert lines[0]["begun"]["torch"] == torch.__version__
    assert set(lines[1]["seconds"]) == {"train", "evaluate", "probe"}
    assert set(lines[1]["unit_seconds"]) == {"batch_gradient", "distance", "optimizer_step", "batch_evaluation"}
    assert b"seconds" not in epochs_of(whole, SPEC)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"num_samples": 100_000}, "at most 1"),
        ({"num_samples": None, "batch_size": 100_000}, "at most 1"),
        ({"model": "vgg13"}, "takes samples of shape"),
        ({"dataset": "digts"}, "digits"),
    ],
    ids=str,
)
def test_what_the_data_cannot_give_is_refused_before_anything_is_written(tmp_path, changes, word):
    with pytest.raises(ArgumentError, match=word):
        run(SPEC.with_(**changes), Store(tmp_path))
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_run_another_process_works_on_is_refused(tmp_path):
    store = Store(tmp_path)
    with store.folder(SPEC).locked(), pytest.raises(StoreError, match="another process"):
        run(SPEC, store)


def test_a_run_is_not_resumed_on_other_data(tmp_path):
    x, y = torch.rand(40, 4), torch.arange(40) % 2
    spec = SPEC.with_(dataset="npz:mine", num_samples=None, batch_size=10, epochs=2, signals=())
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    numpy.savez(tmp_path / "mine.npz", **{name: value.numpy() for name, value in arrays.items()})

    def cut_off(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, Store(tmp_path), data_root=tmp_path, on_epoch=cut_off)
    arrays["y_test"] = 1 - y
    numpy.savez(tmp_path / "mine.npz", **{name: value.numpy() for name, value in arrays.items()})
    with pytest.raises(StoreError, match="other data"):
        run(spec, Store(tmp_path), data_root=tmp_path)
