"""Plain DDP loops on 2 and 4 processes: one decision for all ranks, and an error on one rank raises on all."""

from __future__ import annotations

import importlib
import json
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed, multiprocessing, nn

from heldin import EarlyStopping
from heldin.distributed import agree, gather, is_distributed, mean_reading, rank
from heldin.errors import ArgumentError, BatchesError, HeldinError, NotFiniteError
from heldin.types import Reading


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs scenarios of distributed_loops.py on several processes and returns what each rank saw."""
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)  # new processes start with this path
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
    loops = importlib.import_module("distributed_loops")
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    multiprocessing.set_forkserver_preload(["distributed_loops"])  # torch is imported once, not once per process

    def run_on(processes, *scenarios):
        arguments = processes, str(tmp_path), list(scenarios)
        multiprocessing.start_processes(loops.run, arguments, nprocs=processes, start_method=method)
        found = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(processes)]
        return {name: [one[name] for one in found] for name in scenarios}

    return run_on


@pytest.mark.parametrize("processes", [2, 4])
def test_all_ranks_stop_at_the_same_epoch_with_the_same_values(run, processes):
    found = run(processes, "stop_together", "decide_alone")
    together, alone = found["stop_together"], found["decide_alone"]
    assert all(one == together[0] for one in together)
    assert together[0]["decision"]["reason"] == "nth_rise"
    assert together[0]["num_batches"] == 5 * processes
    assert len({one["decision"]["epoch"] for one in alone}) > 1
    assert all(one["decision"]["stop"] for one in alone)
    assert len({one["weights"] for one in alone}) == 1  # still one training
    first = sum(one["values"][0] for one in alone) / processes
    assert together[0]["values"][0] == pytest.approx(first, rel=1e-12)


def test_an_error_on_one_rank_is_raised_on_all_ranks(run):
    found = run(2, "measuring_fails", "writing_fails", "one_rank_resumed")
    for scenario, number, cause in (("measuring_fails", 1, "BatchesError"), ("writing_fails", 0, "IsADirectoryError")):
        failed, other = found[scenario][number], found[scenario][1 - number]
        assert failed["error"] == cause
        assert other["error"] == "HeldinError"
        assert f"Rank {number}" in other["message"]
        assert failed["message"] in other["message"]
    for one in found["one_rank_resumed"]:
        assert "same measurement. Found them at [0, 1]" in one["message"]
    for ranks in found.values():
        assert all(one["seconds"] < 60.0 for one in ranks)
        assert all(one["recorded"] == 0 for one in ranks)


def test_one_rank_writes_the_file_of_kept_weights_and_all_restore_them_from_it(run):
    main, other = run(2, "keep_in_one_file")["keep_in_one_file"]
    assert (main.pop("num_written") > 0, other.pop("num_written")) == (True, 0)
    assert main == other
    assert main["restored"] == main["values"].index(min(main["values"]))


@pytest.mark.parametrize("scenario", ["rank_ends", "rank_does_not_answer"])
def test_a_rank_that_is_missing_is_an_error_on_the_others(run, scenario):
    waiting, _ = run(2, scenario)[scenario]
    assert waiting["error"] == "HeldinError"
    assert "Found one that ended, or that did not answer within the timeout" in waiting["message"]
    assert waiting["recorded"] == 0


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_an_exact_reading_is_that_of_one_process(run, processes):
    found = run(processes, "read_exactly", "stop_exactly")
    for case in found["read_exactly"][0]:
        exact, single = found["read_exactly"][0][case]
        for name in ("gradient_disparity", "gradient_variance", "num_batches"):
            assert exact[name] == pytest.approx(single[name], rel=1e-6), case
        assert exact["cosine"] == pytest.approx(single["cosine"], abs=1e-6), case  # of nearly orthogonal gradients
        assert exact["noise_scale"] == pytest.approx(single["noise_scale"], rel=1e-4), case
        assert all(one[case][0] == exact for one in found["read_exactly"])  # bit for bit
    together = found["stop_exactly"]
    assert all(one == together[0] for one in together)
    assert together[0]["decision"]["reason"] == "nth_rise"
    assert together[0]["num_batches"] == 5


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_of_training_on_all_ranks_are_compared_at_the_same_weights(run, processes):
    found = run(processes, "read_training", "training_fails")
    num_compared = {"1": min(processes, 5), "3": 5}
    for one in found["read_training"]:
        assert one == found["read_training"][0]
        for micro_batches, case in one.items():
            assert case["same_training"]
            for value, expected, num_batches in case["readings"]:
                assert value == pytest.approx(expected, rel=1e-5)
                assert num_batches == num_compared[micro_batches]
    for problem, error in (("not observed", "BatchesError"), ("not finite", "NotFiniteError")):
        other, failed = (one[problem] for one in found["training_fails"][:2])
        assert (other["error"], failed["error"]) == (error, error)
        assert "Rank 1 failed" in other["message"]


def test_an_error_on_one_rank_of_an_exact_reading_is_raised_on_all_ranks(run):
    found = run(2, "drawing_fails", "passing_fails", "one_rank_resumed", "signal_of_samples", "diverge_on_one_rank")
    for scenario, error, others in (
        ("drawing_fails", "BatchesError", "BatchesError"),
        ("passing_fails", "TypeError", "HeldinError"),
    ):
        other, failed = found[scenario]
        assert (failed["error"], other["error"]) == (error, others)
        assert "Rank 1 failed" in other["message"]
        assert failed["message"] in other["message"]
    for one in found["signal_of_samples"]:
        assert 'Found together="exact"' in one["message"]
    for one in found["diverge_on_one_rank"]:
        assert one["values"][1] == "nan"
        assert one["values"] == found["diverge_on_one_rank"][0]["values"]


@pytest.fixture
def one_rank(tmp_path):
    """torch.distributed, initialised with one process."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def gathered(monkeypatch):
    """Lets `mean_reading` receive the given readings, as if each came from one rank."""

    def mean(*readings):
        monkeypatch.setattr("heldin.distributed.gather", lambda function: list(readings))
        return mean_reading(lambda: readings[0])

    return mean


def test_without_torch_distributed_there_is_one_rank():
    assert (is_distributed(), rank()) == (False, 0)


def test_a_single_rank_decides_as_without_torch_distributed(one_rank):
    data = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(5)]
    model = nn.Linear(4, 3)
    together, alone, exact = (
        EarlyStopping(model, nn.CrossEntropyLoss(), together=flag) for flag in (True, False, "exact")
    )
    for stopper in (together, alone, exact):
        stopper.step(data)
    assert together.history == alone.history
    values = [stopper.history[0].values["gradient_disparity"] for stopper in (exact, alone)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_together_is_one_of_the_choices():
    with pytest.raises(ArgumentError, match=r"`together` should be True, 'mean', 'exact' or False"):
        EarlyStopping(nn.Linear(4, 3), nn.CrossEntropyLoss(), together="sum")


def test_the_error_of_the_own_rank_is_raised_unchanged(one_rank):
    def fail():
        raise NotFiniteError("The loss is NaN.")

    with pytest.raises(NotFiniteError, match="The loss is NaN"):
        gather(fail)


def test_the_mean_reading_counts_the_batches_of_all_ranks(gathered):
    found = gathered(Reading(3, {"a": 1.0, "b": None}, 5), Reading(3, {"a": 2.5, "b": 4.0}, 4))
    assert found == Reading(3, {"a": 1.75, "b": None}, 9)


def test_what_caveats_need_is_the_same_on_all_ranks(gathered):
    one = Reading(3, {"a": 1.0}, 5, 2.0, 40, 2.3, True, 0.1)
    other = Reading(3, {"a": 2.0}, 5, 1.0, 20, 2.1, False, 0.2)
    assert gathered(one, other) == Reading(3, {"a": 1.5}, 10, 1.5, 60, pytest.approx(2.2), False, 0.1)
    unknown = Reading(3, {"a": 2.0}, 5)
    assert gathered(one, unknown) == Reading(3, {"a": 1.5}, 10, one_class=False, learning_rate=0.1)


@pytest.fixture
def described(monkeypatch):
    """Lets `agree` receive what is given, as if each pair of epoch and settings came from one rank."""

    def compare(*found):
        monkeypatch.setattr("heldin.distributed.gather", lambda function: list(found))
        agree(*found[0], lambda: None)

    return compare


def test_ranks_at_different_measurements_raise(described):
    with pytest.raises(HeldinError, match=r"Found them at \[3, 4\]: they were not resumed from the same checkpoint"):
        described((3, {}), (4, {}))


def test_ranks_with_different_settings_raise(described):
    same = {"batches": 5, "memory": "'full'"}
    described((3, same), (3, dict(same)))
    with pytest.raises(ArgumentError, match=r"Found `batches = 5` on rank 0 and `batches = 3` on rank 1"):
        described((3, same), (3, {**same, "batches": 3}))


def test_what_one_rank_lacks_is_refused_before_the_others_wait_for_it(one_rank):
    stopper = EarlyStopping(nn.Linear(4, 2), nn.CrossEntropyLoss(), together="exact")
    with pytest.raises(BatchesError, match="step should be given the training data"):
        stopper.step()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 4.5], 2.5),
        ([7.0], 7.0),
        ([1.0, None], None),
        ([math.nan, None], None),
        ([1.0, math.nan], math.nan),
        ([math.inf, -math.inf], math.nan),
        ([math.inf, 1.0], math.nan),
        ([1e16, 1.0, -1e16], 1 / 3),
        ([1e308, 1e308], 1e308),
        ([0.1, 0.1, 0.1], 0.1),
    ],
    ids=str,
)
def test_the_mean_of_values(gathered, values, expected):
    found = gathered(*(Reading(0, {"a": value}, 1) for value in values)).values["a"]
    assert repr(found) == repr(expected)


@settings(max_examples=25)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_mean_does_not_depend_on_the_order_of_ranks(values, random):
    def mean(some):
        with pytest.MonkeyPatch.context() as patched:
            readings = [Reading(0, {"a": value}, 1) for value in some]
            patched.setattr("heldin.distributed.gather", lambda function: readings)
            return mean_reading(lambda: readings[0]).values["a"]

    shuffled = random.sample(values, len(values))
    assert mean(shuffled) == mean(values)
