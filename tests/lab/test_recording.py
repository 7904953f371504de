"""Detailed readings: they hold what signals are computed from, and do not change training."""

import math
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import heldin
from heldin.gradients import Gradients
from heldin.lab.curves import groups
from heldin.lab.recording import EARLY_EPOCHS, Recorder, pack_gram, reading_places, unpack_gram
from heldin.lab.run import run
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

FIXED = ("gradient_disparity@fixed", "gradient_disparity[rescale=std_detached]@fixed", "noise_scale@fixed")
SPEC = RunSpec(
    dataset="digits",
    num_samples=100,
    num_test=90,
    label_noise=0.3,
    model="mlp_dropout",
    scale=0.1,
    batch_size=16,
    epochs=EARLY_EPOCHS + 2,
    learning_rate=0.05,
    signals=FIXED,
    detailed_readings=3,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def record(store):
    return run(SPEC, store)


def mean_distance(products):
    gram = unpack_gram(products)
    return fmean(gram.distance(i, j) for i, j in gram.pairs())


def recorder_of(*, num_batches=3, model=None):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    batches = [(torch.randn(12, 4), torch.randint(3, (12,))) for _ in range(num_batches)]
    return Recorder(model, nn.CrossEntropyLoss(), batches, seed=5)


def test_there_are_several_readings_in_early_epochs_and_one_in_later_ones(record):
    places = [[reading["epochs"] for reading in line["readings"]] for line in record.epochs]
    assert places[0] == pytest.approx([0.0, 2 / 7, 5 / 7, 1.0])
    assert places[1] == pytest.approx([1 + 2 / 7, 1 + 5 / 7, 2.0])
    assert [len(each) for each in places] == [4] + [3] * (EARLY_EPOCHS - 1) + [1, 1]
    assert places[-1] == [EARLY_EPOCHS + 2.0]


def test_the_last_reading_of_an_epoch_has_its_test_metrics(record):
    for line in record.epochs:
        last = line["readings"][-1]
        assert (last["test_loss"], last["test_error"]) == (line["test_loss"], line["test_error"])
    first = record.epochs[0]["readings"][0]
    assert first["test_loss"] == pytest.approx(math.log(10), abs=0.2)
    assert first["moved"] == 0.0


def test_the_signals_on_fixed_batches_follow_from_the_gram_matrices(record):
    for line in record.epochs:
        grams = line["readings"][-1]["grams"]
        assert mean_distance(grams["std"]) == pytest.approx(line["signals"][FIXED[0]], rel=1e-5)
        assert mean_distance(grams["std_detached"]) == pytest.approx(line["signals"][FIXED[1]], rel=1e-5)
        plain = unpack_gram(grams["none"], num_samples=[16] * 5)
        assert heldin.NoiseScale().read(plain) == pytest.approx(line["signals"][FIXED[2]], rel=1e-4)


@pytest.mark.parametrize("rescale", ["std_detached", "pooled_std"])
def test_re_scalings_by_a_constant_follow_from_plain_gradients(rescale):
    recorder = recorder_of()
    reading = recorder.read()
    by = reading["stds"] if rescale == "std_detached" else [reading["pooled_std"]] * 3
    plain = unpack_gram(reading["grams"]["none"])
    distances_sq = [
        plain.inner(i, i) / by[i] ** 2 + plain.inner(j, j) / by[j] ** 2 - 2 * plain.inner(i, j) / (by[i] * by[j])
        for i, j in plain.pairs()
    ]
    expected = heldin.measure(
        recorder.probe.model,
        nn.CrossEntropyLoss(),
        recorder.batches,
        signals=[heldin.GradientDisparity(rescale=rescale)],
        seed=5,
    )
    assert fmean(map(math.sqrt, distances_sq)) == pytest.approx(expected["gradient_disparity"], rel=1e-4)


def test_losses_and_entropy_are_those_of_the_batches():
    recorder = recorder_of(model=nn.Linear(4, 3))
    reading = recorder.read()
    x, y = (torch.cat(part) for part in zip(*recorder.batches, strict=True))
    output = recorder.probe.model(x).detach()
    losses = nn.functional.cross_entropy(output, y, reduction="none").double()
    assert reading["loss"] == pytest.approx(float(losses.mean()))
    assert reading["losses"] == pytest.approx([float(part.mean()) for part in losses.split(12)])
    assert reading["stds"] == pytest.approx([float(part.std()) for part in losses.split(12)])
    assert reading["pooled_std"] == pytest.approx(float(losses.std(correction=0)))
    assert reading["error"] == float((output.argmax(1) != y).double().mean())
    assert reading["entropy"] == pytest.approx(float(torch.distributions.Categorical(logits=output).entropy().mean()))


def test_changed_predictions_are_counted_from_the_second_reading_on():
    recorder = recorder_of(model=nn.Linear(4, 3))
    assert recorder.read()["changed"] is None
    assert recorder.read()["changed"] == 0.0
    with torch.no_grad():
        recorder.probe.model.weight.neg_()
        recorder.probe.model.bias.neg_()
    reading = recorder.read()
    assert reading["changed"] > 0.0
    assert reading["moved"] == pytest.approx(
        2 * math.sqrt(sum(float(start.square().sum()) for start in recorder.initial)), rel=1e-5
    )


def test_drawn_labels_follow_the_predicted_probabilities():
    """For a linear model without inputs that differ, the mean gradient with drawn labels is near 0."""
    model = nn.Linear(1, 4)
    batches = [(torch.zeros(4000, 1), torch.zeros(4000, dtype=torch.int64)) for _ in range(2)]
    recorder = Recorder(model, nn.CrossEntropyLoss(), batches, seed=0)
    gram = unpack_gram(recorder.read()["grams"]["sampled"])
    p = model.bias.detach().softmax(0).double()
    expected_sq = float((p * (1 - p)).sum()) / 4000  # of the mean over 4,000 samples
    assert 0.05 < gram.inner(0, 0) / expected_sq < 5
    again = recorder.read()["grams"]["sampled"]
    assert unpack_gram(again) == gram  # the same random numbers each time


def test_a_model_that_diverged_has_no_gram_matrices():
    recorder = recorder_of(model=nn.Linear(4, 3))
    with torch.no_grad():
        recorder.probe.model.weight.fill_(math.nan)
    reading = recorder.read()
    assert reading["grams"] == {"none": None, "std": None, "std_detached": None, "sampled": None}
    assert math.isnan(reading["loss"])
    assert math.isnan(reading["entropy"])


def test_readings_do_not_change_training(record, tmp_path):
    plain = run(SPEC.with_(detailed_readings=0), Store(tmp_path))
    for line, with_readings in zip(plain.epochs, record.epochs, strict=True):
        assert with_readings == {
            **line,
            "after_epoch": with_readings["after_epoch"],
            "readings": with_readings["readings"],
        }


def test_an_interrupted_run_records_the_same_readings(record, store, tmp_path):
    def interrupt(line):
        if line["epoch"] == 2:
            raise KeyboardInterrupt

    resumed = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, resumed, on_epoch=interrupt)
    run(SPEC, resumed)
    recorded, again = ((each.folder(SPEC).path / "epochs.jsonl").read_bytes() for each in (store, resumed))
    assert recorded == again


def test_after_an_epoch_the_whole_training_data_is_evaluated(record):
    first, second = (line["after_epoch"] for line in record.epochs[:2])
    assert first["changed"] is None
    assert 0 <= second["changed"] <= 100
    assert 0 < record.epochs[-1]["after_epoch"]["loss"] < first["loss"]
    assert first["entropy"] <= math.log(10)


def test_runs_with_and_without_readings_belong_to_one_setting(record, tmp_path):
    other = run(SPEC.with_(detailed_readings=0, signals=("cosine",)), Store(tmp_path))
    for records in ([record, other], [other, record]):
        (group,) = groups(records)
        (merged,) = group.full
        assert {*merged.names} == {*FIXED, "cosine"}
        assert merged.epochs[3]["readings"] == record.epochs[3]["readings"]
        assert merged.spec.detailed_readings == 3


@given(
    st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3), min_size=size, max_size=size
        )
    )
)
def test_a_gram_matrix_is_recovered_from_its_products(rows):
    rows = tuple((torch.tensor(row, dtype=torch.float64),) for row in rows)
    gram = Gradients(rows, (1.0,) * len(rows), (3,), len(rows)).gram(inner=True)
    found = unpack_gram(pack_gram(gram), num_parameters=3)
    for i in range(len(rows)):
        for j in range(len(rows)):
            assert found.inner(i, j) == pytest.approx(gram.inner(i, j), rel=1e-6, abs=1e-4)
            assert found.distance_sq(i, j) == pytest.approx(gram.distance_sq(i, j), rel=1e-6, abs=1e-4)


@pytest.mark.parametrize(
    ("num_batches", "num_readings", "expected"),
    [(10, 1, [10]), (10, 2, [5, 10]), (2, 4, [1, 2]), (1, 4, [1]), (3, 5, [1, 2, 3])],
)
def test_readings_are_evenly_spaced_and_the_last_is_at_the_end(num_batches, num_readings, expected):
    assert reading_places(num_batches, num_readings) == expected
