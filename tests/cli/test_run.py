"""run: from files and options to records; wrong input raises before anything is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from heldin.lab.spec import DEFAULT_SIGNALS
from heldin.lab.store import Store

QUICK = (
    "--dataset", "digits", "--num-samples", 40, "--scale", 0.02, "--batch-size", 10, "--epochs", 2,
    "--signal", "cosine", "--jobs", 1,
)  # fmt: skip


def specs_in(store="heldin-runs"):
    return [record.spec for record in Store(store).records() if record.done]


def test_a_run_is_recorded_and_the_next_step_is_printed(heldin):
    answer = heldin("run", *QUICK)
    assert answer.code == 0
    assert answer.out == "The records are in heldin-runs/runs.\n"
    assert "1 run done." in answer.err
    assert "Next: `heldin table`, or" in answer.err
    [spec] = specs_in()
    assert (spec.num_samples, spec.scale, spec.epochs, spec.signals) == (40, 0.02, 2, ("cosine",))


def test_a_network_that_hardly_learned_is_reported(heldin):
    warning = "Nothing learnt here: the training error never fell"
    assert warning in heldin("run", *QUICK, "--learning-rate", 1e-6).err
    assert warning not in heldin("run", *QUICK, "--learning-rate", 0.01, "--optimizer", "adam", "--scale", 0.2).err


def test_the_same_command_again_computes_nothing(heldin):
    heldin("run", *QUICK)
    [epochs] = list(Store("heldin-runs").root.rglob("epochs.jsonl"))
    before = epochs.stat().st_mtime_ns
    assert "1 run done, 1 of them before this command." in heldin("run", *QUICK).err
    assert epochs.stat().st_mtime_ns == before


def test_folds_make_one_run_each_and_with_full_adds_the_run_on_all_the_data(heldin):
    assert heldin("run", *QUICK, "--folds", 3, "--with-full", "--store", "s").code == 0
    assert sorted((spec.fold, spec.folds) for spec in specs_in("s") if spec.fold is not None) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]
    assert [spec.fold for spec in specs_in("s")].count(None) == 1


def test_a_single_fold_can_be_run(heldin):
    heldin("run", *QUICK, "--folds", 3, "--fold", 1)
    assert [(spec.fold, spec.folds) for spec in specs_in()] == [(1, 3)]


@pytest.mark.parametrize(("text", "seeds"), [("0-1,5", [0, 1, 5]), ("3", [3])])
def test_seeds_are_ranges_and_lists(heldin, text, seeds):
    heldin("run", *QUICK, "--seeds", text)
    assert sorted(spec.seed for spec in specs_in()) == seeds


def test_options_override_the_specs_of_files(heldin, tmp_path):
    (tmp_path / "spec.toml").write_text(
        'dataset = "digits"\nnum_samples = 40\nbatch_size = 10\nscale = 0.02\nepochs = 50\nsignals = []\n'
        "[[run]]\nlabel_noise = 0.0\n[[run]]\nlabel_noise = 0.5\n"
    )
    assert heldin("run", "spec.toml", "--epochs", 1, "--jobs", 1).code == 0
    assert sorted((spec.label_noise, spec.epochs, spec.signals) for spec in specs_in()) == [(0.0, 1, ()), (0.5, 1, ())]


def test_without_signals_the_default_ones_are_recorded(heldin):
    without = [part for part in QUICK if part not in ("--signal", "cosine")]
    assert heldin("run", *without).code == 0
    [record] = Store("heldin-runs").records()
    assert tuple(record.names) == DEFAULT_SIGNALS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--dataset", "digit"), "Did you mean 'digits'?"),
        (("--model", "vgg12"), "Did you mean 'vgg1"),
        (("--optimizer", "adm"), "Did you mean 'adam'?"),
        (("--signal", "cosin"), "Did you mean 'cosine'?"),
        (("--engine", "rey"), "Did you mean 'ray'?"),
        (("--num-samples", 5000), "should be at most 1437, all that digits has"),
        (("--batch-size", 41), "`batch_size` should be at most `num_samples`"),
        (("--folds", 41), "`folds` should be at most `num_samples`"),
        (("--folds", 1), "`folds` should be an integer of at least 2"),
        (("--fold", 1), "Give both `fold` and `folds`"),
        (("--label-noise", 1.5), "`label_noise` should be at most 1"),
        (("--epochs", 0), "`epochs` should be an integer of at least 1"),
        (("--epochs", "many"), "Invalid value for '--epochs'"),
        (("--jobs", 0), "`--jobs` should be an integer of at least 1"),
        (("--seeds", "3-1"), "--seeds should be a range or a list, such as 0-4 or 0,1,2. Found '3-1'."),
        (("--seeds", "1", "--seed", 1), "Give either --seed or --seeds."),
        (("--seeds", "0,0"), "--seeds should name each seed once. Found '0,0'."),
        (("--seeds", "0-2,1"), "--seeds should name each seed once."),
        (("--with-full",), "--with-full adds the run on all the data to the runs with folds. Found no folds."),
        (("--batch-size", 1, "--signal", "gradient_disparity"), "'gradient_disparity' needs larger batches."),
        (("--batch-size", 2, "--signal", "gradient_disparity[rescale=minmax]"), "Found `batch_size = 2`: of a batch,"),
        (("--num-samples", 1), "Leave it out to use all samples."),
        (("--dataset", "npz:nothing", "--data", "."), "or into the current folder ("),
        (("--model", "alexnet"), "'alexnet' takes samples of shape (1, 28, 28). Found shape (1, 8, 8)."),
        (("--model", "vgg11", "--dataset", "breast_cancer"), "takes samples of shape (3, 32, 32). Found shape (30,)."),
        (("--scale", 0.0001), "`scale` should be a finite positive number that leaves each layer a channel."),
        (
            ("--augment", "--dataset", "breast_cancer"),
            "Augmentation needs images (c, h, w). Found samples of shape (30,)",
        ),
        (("--address", "here"), "Add --engine ray or --engine dask."),
        (("no-such.toml",), "no-such.toml should be a TOML file"),
    ],
)
def test_wrong_options_raise_before_anything_is_written(refused, tmp_path, flags, words):
    assert words in refused("run", *QUICK, *flags)
    assert list(tmp_path.iterdir()) == []


def test_batches_of_one_sample_are_accepted_with_signals_that_need_no_spread(heldin):
    flags = ("--batch-size", 1, "--signal", "gradient_disparity[rescale=pooled_std]", "--epochs", 1)
    assert heldin("run", *QUICK, *flags).code == 0


@pytest.mark.parametrize("text", ["", "# nothing\n", "[[run]]\n", "run = []\n"])
def test_a_file_without_fields_is_refused(refused, tmp_path, text):
    (tmp_path / "spec.toml").write_text(text)
    assert "spec.toml should have the fields of a spec, such as epochs = 100. Found none." in refused(
        "run", "spec.toml"
    )
    assert not (tmp_path / "heldin-runs").exists()


def test_an_unknown_field_suggests_the_nearest(refused, tmp_path):
    (tmp_path / "spec.toml").write_text("epoch = 3\n")
    assert "A spec has no 'epoch'." in refused("run", "spec.toml")
    assert "Did you mean 'epochs'?" in refused("run", "spec.toml")


def test_a_store_that_is_not_writable_raises(refused, tmp_path):
    (tmp_path / "file").write_text("mine")
    words = refused("run", *QUICK, "--store", "file")
    assert "file cannot be written: Not a directory. Choose another place with --store." in words
    assert (tmp_path / "file").read_text() == "mine"


def test_a_wrong_data_file_raises(refused, tmp_path):
    (tmp_path / "mine.npz").write_text("no arrays")
    words = refused("run", "--dataset", "npz:mine", "--data", tmp_path)
    assert "mine.npz" in words
    assert not (tmp_path / "heldin-runs").exists()


def test_a_damaged_run_raises_and_other_runs_still_work(heldin, refused):
    heldin("run", *QUICK)
    [path] = Store("heldin-runs").root.rglob("spec.json")
    for spoilt in (path, path.with_name("done.json")):
        whole = spoilt.read_text()
        spoilt.write_text("{")
        assert str(path.parent) in refused("run", *QUICK)
        assert heldin("run", *QUICK, "--seed", 1).code == 0
        spoilt.write_text(whole)
    assert heldin("run", *QUICK).code == 0


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_ends_cleanly_and_prints_how_to_continue(tmp_path, jobs):
    seeds = f"0-{6 * jobs}"  # more runs than joblib sends ahead to its workers
    flags = [str(part) for part in QUICK[:-2]] + ["--epochs", "100000", "--seeds", seeds, "--jobs", str(jobs)]
    command = [sys.executable, "-m", "heldin", "run", *flags]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )
    try:
        deadline = time.monotonic() + 600
        while not any(path.stat().st_size for path in tmp_path.rglob("epochs.jsonl")):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)  # what a terminal does: to the command and all its workers
        _, err = running.communicate(timeout=600)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "Exception in thread" not in err
    assert "Interrupted. All finished epochs are recorded. To continue: heldin run --dataset digits" in err
    records = Store(tmp_path / "heldin-runs").records()
    assert records
    assert not any(record.done for record in records)
    for path in tmp_path.rglob("epochs.jsonl"):
        assert all(json.loads(line) for line in path.read_text().split("\n")[:-1])


def test_records_without_a_test_set_are_shown_by_every_command(heldin):
    small = ("--dataset", "digits", "--model", "mlp", "--num-samples", 100, "--batch-size", 20, "--epochs", 7)
    answer = heldin("run", *small, "--num-test", 0, "--signal", "gradient_disparity", "--learning-rate", 1e-6)
    assert answer.code == 0
    assert "the training error never fell below" in answer.out + answer.err
    for command in (("table",), ("table", "--all"), ("replay",), ("report",), ("status",)):
        assert heldin(*command).code == 0
    for kind in ("sensitivity", "thresholds"):
        assert "They have no test metrics: they have no test set." in " ".join(heldin("table", kind).err.split())
