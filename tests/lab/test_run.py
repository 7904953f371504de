"""The training loop: to the horizon, every signal, and the same records however often it was interrupted."""

import math
import multiprocessing
import os
import random
import re
import time

import numpy
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score, top_k_accuracy_score
from torch import nn

import heldin
from heldin.errors import ArgumentError, StoreError
from heldin.lab.curves import METRICS
from heldin.lab.data import Arrays, fingerprint, load
from heldin.lab.engine import run_all
from heldin.lab.evaluation import auc, constant_error, evaluate, metrics
from heldin.lab.registry import OneHotMSE
from heldin.lab.run import _Training, build_parts, run
from heldin.lab.samples import prepare
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunLockedError, Store

SPEC = RunSpec(
    dataset="digits",
    num_samples=200,
    label_noise=0.3,
    scale=0.04,
    batch_size=32,
    epochs=4,
    optimizer="adam",
    learning_rate=0.01,
)


def epochs_of(store, spec):
    return (store.folder(spec).path / "epochs.jsonl").read_bytes()


def interrupt_after(epoch):
    """A callback that interrupts a run after this epoch."""

    def on_epoch(line):
        if line["epoch"] == epoch:
            raise KeyboardInterrupt

    return on_epoch


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    store = Store(tmp_path_factory.mktemp("whole"))
    run(SPEC, store)
    return store


def test_every_epoch_is_recorded_with_every_signal(whole):
    record = whole.record(SPEC)
    assert record.done
    assert [line["epoch"] for line in record.epochs] == list(range(4))
    assert record.names == list(SPEC.signals)
    for line in record.epochs:
        assert {"train_loss", "train_error", "test_loss", "test_error", "test_top5", "parameter_norm"} <= line.keys()
        assert all(math.isfinite(value) for name, value in line["signals"].items() if name != "label_wave")
    assert record.curve("label_wave")[0] is None
    assert record.curve("train_loss")[-1] < record.curve("train_loss")[0]
    assert not (whole.folder(SPEC).path / "checkpoint.pt").exists()


def test_a_run_that_is_done_is_not_run_again(whole):
    lines = []
    assert run(SPEC, whole, on_epoch=lines.append) == whole.record(SPEC)
    assert lines == []


def test_records_are_a_function_of_the_spec_alone(whole, tmp_path):
    random.seed(7)
    torch.manual_seed(7)
    torch.rand(3)
    run(SPEC, Store(tmp_path))
    assert epochs_of(Store(tmp_path), SPEC) == epochs_of(whole, SPEC)


def test_the_global_random_streams_are_restored(tmp_path):
    before = torch.get_rng_state(), random.getstate()
    run(SPEC.with_(epochs=1), Store(tmp_path))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.parametrize("last", range(3))
def test_a_run_interrupted_after_any_epoch_continues_to_the_same_records(whole, tmp_path, last):
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, store, on_epoch=interrupt_after(last))
    assert not store.record(SPEC).done
    lines = []
    run(SPEC, store, on_epoch=lines.append)
    assert [line["epoch"] for line in lines] == list(range(last + 1, 4))
    assert epochs_of(store, SPEC) == epochs_of(whole, SPEC)


KILLED = SPEC.with_(signals=("gradient_disparity", "cosine@fixed", "label_wave"), epochs=6, num_samples=100)


def _child(root):
    run(KILLED, Store(root))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_run_killed_at_any_moment_continues_to_the_same_records(tmp_path):
    """At least 20 kills, each at a random moment of the time a run takes."""
    context = multiprocessing.get_context("fork")  # starts fast: half of all kills hit the run itself
    moments, kills, epochs_lost = random.Random(0), 0, []
    run(KILLED, Store(tmp_path / "whole"))
    started = time.perf_counter()
    _start(context, tmp_path / "first").join()
    length = time.perf_counter() - started
    attempt = 0
    while kills < 20:
        folder = Store(tmp_path / str(attempt)).folder(KILLED)
        while not folder.done:
            before = folder.num_epochs
            process = _start(context, tmp_path / str(attempt))
            process.join(moments.uniform(0.2, 1.0) * length)
            if process.is_alive():
                process.kill()
                kills += 1
                epochs_lost.append(before - folder.num_epochs)
            process.join()
        assert epochs_of(Store(tmp_path / str(attempt)), KILLED) == epochs_of(Store(tmp_path / "whole"), KILLED)
        attempt += 1
    assert max(epochs_lost) <= 1


def _start(context, root):
    process = context.Process(target=_child, args=(root,))
    process.start()
    return process


@pytest.mark.parametrize("half", ["line", "checkpoint", "both"])
def test_what_a_crash_left_incomplete_is_computed_again(whole, tmp_path, half):
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, store, on_epoch=interrupt_after(1))
    folder = store.folder(SPEC).path
    if half in ("line", "both"):
        with (folder / "epochs.jsonl").open("a") as file:
            file.write('{"epoch":2,"train_lo')
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
        {"signals": ("gradient_disparity[rescale=std_detached]@training", "cosine@training@s=20")},
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
    with pytest.raises(KeyboardInterrupt):
        run(spec, Store(tmp_path / "parts"), on_epoch=interrupt_after(0))
    run(spec, Store(tmp_path / "parts"))
    assert epochs_of(Store(tmp_path / "parts"), spec) == epochs_of(Store(tmp_path / "whole"), spec)


def test_a_run_without_a_fold_is_validated_on_it(tmp_path):
    (line,) = run(SPEC.with_(epochs=1, fold=0, folds=4), Store(tmp_path)).epochs
    assert {"val_loss", "val_error"} <= line.keys()


def test_signals_on_more_batches_and_against_the_fold_left_out(tmp_path):
    signals = ("gradient_disparity", "gradient_disparity@s=2", "gradient_disparity@s=9", "train_val_disparity")
    spec = SPEC.with_(epochs=1, fold=0, folds=4, batch_size=16, signals=signals)
    (line,) = run(spec, Store(tmp_path)).epochs
    assert len({*line["signals"].values()}) == 4
    assert all(value > 0.0 for value in line["signals"].values())


def test_gradients_of_training_are_read_without_changing_the_other_records(tmp_path):
    label = "gradient_disparity[rescale=std_detached]"
    signals = label, f"{label}@fixed"
    plain = run(SPEC.with_(signals=signals), Store(tmp_path))
    found = run(SPEC.with_(signals=(*signals, f"{label}@training")), Store(tmp_path))
    for line, expected in zip(found.epochs, plain.epochs, strict=True):
        assert line["signals"].pop(f"{label}@training") > 0.0
        assert line == expected


def test_a_signal_of_training_compares_the_last_batches_of_the_epoch():
    label = "gradient_disparity[rescale=std_detached]@training"
    spec = SPEC.with_(signals=(label,), learning_rate=1e-30, optimizer="sgd")  # the weights stay as they are
    training = _Training(
        spec, prepare(spec, load("digits")), "", build_parts(spec, load("digits")), torch.device("cpu")
    )
    for epoch in range(2):
        line, _ = training.epoch(epoch)
        parts = training._batches(epoch, 200)[:-1][-5:]  # the last one has 8 samples
        batches = [(training.split.x_train[part], training.split.y_train[part]) for part in parts]
        expected = heldin.measure(
            training.model, nn.CrossEntropyLoss(), batches, signals=heldin.GradientDisparity(rescale="std_detached")
        )
        assert line["signals"][label] == pytest.approx(expected["gradient_disparity"], rel=1e-5)


def test_images_can_be_augmented(tmp_path):
    spec = RunSpec(dataset="mnist5k", num_samples=64, scale=0.02, batch_size=16, epochs=1)
    plain, augmented = (run(spec.with_(augment=flag), Store(tmp_path)).epochs[0] for flag in (False, True))
    assert plain["train_loss"] != augmented["train_loss"]


def test_training_ends_below_until_loss(tmp_path):
    record = run(SPEC.with_(epochs=50, until_loss=2.0, signals=()), Store(tmp_path))
    losses = record.curve("train_loss")
    assert losses[-1] < 2.0
    assert all(loss >= 2.0 for loss in losses[:-1])
    assert len(losses) < 50


def test_a_run_that_crashed_after_its_last_epoch_is_not_trained_further(tmp_path):
    spec = SPEC.with_(epochs=50, until_loss=2.0, signals=())
    expected = len(run(spec, Store(tmp_path / "whole")).epochs)
    with pytest.raises(KeyboardInterrupt):
        run(spec, Store(tmp_path / "parts"), on_epoch=interrupt_after(expected - 1))
    assert len(run(spec, Store(tmp_path / "parts")).epochs) == expected


def test_training_that_diverges_is_recorded_to_the_end(tmp_path):
    record = run(SPEC.with_(optimizer="sgd", learning_rate=1e6, loss="mse", epochs=4), Store(tmp_path))
    assert len(record.epochs) == 4
    assert not math.isfinite(record.curve("train_loss")[-1])


def test_seconds_are_not_in_the_records(whole):
    lines = whole.folder(SPEC).timings()
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
def test_an_impossible_run_is_refused_before_anything_is_written(tmp_path, changes, word):
    with pytest.raises(ArgumentError, match=word):
        run(SPEC.with_(**changes), Store(tmp_path))
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_run_that_is_locked_is_refused(tmp_path):
    store = Store(tmp_path)
    with store.folder(SPEC).locked(), pytest.raises(RunLockedError, match=f"worked on by process {os.getpid()}"):
        run(SPEC, store)


MINE = SPEC.with_(dataset="npz:mine", num_samples=None, batch_size=10, epochs=2, signals=())


def write_mine(folder, *, changed=None):
    """Write the data of `MINE`; `changed` is the array whose last element is another one."""
    x, y = torch.linspace(0, 1, 160).reshape(40, 4), torch.arange(40) % 2
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    if changed is not None:
        arrays[changed] = arrays[changed].clone()
        arrays[changed].view(-1)[-1] = 1 - arrays[changed].view(-1)[-1]
    numpy.savez(folder / "mine.npz", **{name: value.numpy() for name, value in arrays.items()})


@pytest.mark.parametrize("changed", ["x_train", "y_train", "x_test", "y_test"])
def test_no_run_is_resumed_or_taken_as_done_if_one_value_of_the_data_changed(tmp_path, changed):
    store = Store(tmp_path)
    write_mine(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(MINE, store, data_root=tmp_path, on_epoch=interrupt_after(0))
    run(MINE.with_(seed=1), store, data_root=tmp_path)
    before = store.folder(MINE).data
    write_mine(tmp_path, changed=changed)
    for spec in (MINE, MINE.with_(seed=1)):
        with pytest.raises(StoreError, match=rf"npz:mine has changed.* on the data {re.escape(before)}.*Found 40\+40-"):
            run(spec, store, data_root=tmp_path)
    with pytest.raises(StoreError, match="npz:mine has changed: 2 runs were trained on .* another --store"):
        run_all([MINE.with_(seed=2)], store, data_root=tmp_path, jobs=1)
    assert len(store.records()) == 2
    write_mine(tmp_path)
    run(MINE, store, data_root=tmp_path)
    (tmp_path / "mine.npz").unlink()
    assert run(MINE, store, data_root=tmp_path).done  # the data of a finished run may be missing


def test_records_without_a_fingerprint_are_accepted(tmp_path):
    store = Store(tmp_path)
    write_mine(tmp_path)
    run(MINE, store, data_root=tmp_path)
    (store.folder(MINE).path / "data.json").unlink()
    write_mine(tmp_path, changed="x_train")
    assert run(MINE, store, data_root=tmp_path).data is None
    assert {record.data for record in run_all([MINE, MINE.with_(seed=1)], store, data_root=tmp_path, jobs=1)} == {
        None,
        fingerprint("npz:mine", tmp_path),
    }


@pytest.mark.parametrize("part", ["model", "optimizer", "memory", "epoch"])
def test_a_checkpoint_written_before_hashes_that_lacks_a_part_is_refused(tmp_path, part):
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, Store(tmp_path), on_epoch=interrupt_after(0))
    path = Store(tmp_path).folder(SPEC).path / "checkpoint.pt"
    whole = torch.load(path, weights_only=True)
    earlier = {name: whole[name] for name in ("epoch", "model", "optimizer", "memory")} | {"data": {}}
    torch.save({**earlier, part: None}, path)
    with pytest.raises(StoreError, match="should be the checkpoint of run .* Remove this file"):
        run(SPEC, Store(tmp_path))
    torch.save(earlier, path)
    assert run(SPEC, Store(tmp_path)).done


@pytest.fixture
def arrays():
    x, y = torch.arange(100.0)[:, None], torch.arange(100) % 5
    return Arrays("toy", x, y, x[:20].clone(), y[:20].clone(), 5)


def small_spec(**changes):
    return RunSpec(**{"batch_size": 4, **changes})


def test_a_subset_keeps_samples_and_labels_together(arrays):
    split = prepare(small_spec(num_samples=30), arrays)
    assert len(split.x_train) == len(set(split.x_train.flatten().tolist())) == 30
    assert torch.equal(split.x_train.flatten().long() % 5, split.y_train)
    assert split.x_val is None


def test_the_test_set_is_complete_and_without_noise(arrays):
    split = prepare(small_spec(num_samples=30, label_noise=1.0), arrays)
    assert torch.equal(split.y_test, arrays.y_test)
    assert torch.equal(split.x_test, arrays.x_test)


def test_label_noise_changes_the_given_fraction(arrays):
    clean = prepare(small_spec(), arrays)
    noisy = prepare(small_spec(label_noise=0.5), arrays)
    assert torch.equal(clean.x_train, noisy.x_train)
    assert 25 <= int((clean.y_train != noisy.y_train).sum()) <= 50  # 50 are replaced, a fifth of them by the same label


def test_folds_share_subset_and_noise_and_leave_each_sample_out_once(arrays):
    splits = [prepare(small_spec(num_samples=40, label_noise=0.5, fold=i, folds=4), arrays) for i in range(4)]
    full = prepare(small_spec(num_samples=40, label_noise=0.5), arrays)
    labels = dict(zip(full.x_train.flatten().tolist(), full.y_train.tolist(), strict=True))
    left_out = []
    for split in splits:
        inside, outside = split.x_train.flatten().tolist(), split.x_val.flatten().tolist()
        assert sorted([*inside, *outside]) == sorted(labels)
        assert [labels[x] for x in inside] == split.y_train.tolist()
        assert [labels[x] for x in outside] == split.y_val.tolist()
        left_out += outside
    assert sorted(left_out) == sorted(labels)


def test_another_seed_gives_another_subset(arrays):
    one, other = (prepare(small_spec(num_samples=30, seed=seed), arrays) for seed in (0, 1))
    assert not torch.equal(one.x_train, other.x_train)


def test_an_npz_file_has_one_name(arrays):
    with pytest.raises(ArgumentError, match=r"the name without .npz. Found .*npz:mine.npz.* Write npz:mine\."):
        prepare(small_spec(dataset="npz:mine.npz"), arrays)


def test_a_signal_that_compares_with_a_fold_needs_one(arrays):
    signals = ("train_val_disparity",)
    with pytest.raises(ArgumentError, match="--folds 5"):
        prepare(small_spec(signals=signals), arrays)
    assert prepare(small_spec(signals=signals, fold=0, folds=4), arrays).x_val is not None


def test_loss_error_and_top5_agree_with_scikit_learn():
    outputs, y = torch.randn(200, 10), torch.randint(10, (200,))
    found = metrics(nn.CrossEntropyLoss(), outputs, y)
    assert found["loss"] == pytest.approx(log_loss(y, outputs.double().softmax(1), labels=range(10)), rel=1e-5)
    assert found["error"] == pytest.approx(1 - float((outputs.argmax(1) == y).float().mean()))
    assert found["top5"] == pytest.approx(1 - top_k_accuracy_score(y, outputs, k=5, labels=range(10)))
    assert "auc" not in found


def test_auc_agrees_with_scikit_learn_also_with_ties():
    scores, y = torch.randint(5, (100,)).float(), torch.randint(2, (100,))
    assert auc(scores, y) == pytest.approx(roc_auc_score(y, scores))
    assert math.isnan(auc(scores, torch.zeros(100, dtype=torch.long)))


def test_two_classes_have_an_auc_and_no_top5():
    assert set(metrics(nn.CrossEntropyLoss(), torch.randn(9, 2), torch.arange(9) % 2)) == {"loss", "error", "auc"}


def test_evaluation_uses_evaluation_mode_and_restores_the_mode():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    x, y = torch.randn(700, 4), torch.randint(3, (700,))
    first, second = (evaluate(model, nn.CrossEntropyLoss(), x, y) for _ in range(2))
    assert first == second
    assert model.training


def test_a_model_of_the_user_may_view_its_images_as_vectors(tmp_path, monkeypatch):
    (tmp_path / "viewing.py").write_text(
        "from torch import nn\n"
        "class Viewing(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1))\n"
        "        self.head = nn.Linear(64 * 64, 10)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.conv(x).view(len(x), -1))\n"
        "def build(shape, num_classes, scale):\n"
        "    return Viewing()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    record = run(SPEC.with_(model="viewing:build", epochs=1), Store(tmp_path / "store"))
    assert record.done


def test_the_loss_of_the_spec_is_recorded():
    output, target = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([0, 1])
    assert metrics(OneHotMSE(), output, target)["loss"] == 0.125


def test_every_metric_of_a_record_has_a_title():
    found = {f"test_{name}" for C in (2, 10) for name in metrics(OneHotMSE(), torch.rand(4, C), torch.arange(4) % 2)}
    assert found == {*METRICS}


def test_the_error_of_the_most_frequent_class_is_recorded(tmp_path):
    assert constant_error(torch.tensor([0, 1, 1, 2])) == 0.5
    assert constant_error(torch.tensor([])) is None
    spec = RunSpec(dataset="digits", num_samples=20, scale=0.04, batch_size=10, epochs=1, signals=(), num_test=50)
    y = load("digits").y_test[:50]
    assert run(spec, Store(tmp_path)).constant_error == pytest.approx(1.0 - y.bincount().max().item() / 50)
    assert run(spec.with_(num_test=0), Store(tmp_path)).constant_error is None
