"""Items with incomplete runs: a signal was not measured in a run, or a rule never fires."""

import pytest

from heldin.lab.run import run
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from paper import fig_opt, fig_s, tab_norm, tab_rw
from paper.harness import MEAN_CURVE, PER_RUN, Runs
from paper.settings import OPTIMIZERS, RELATED, RELATED_CIFAR10, RELATED_MNIST

RISING, UP_AND_DOWN = [float(epoch + 1) for epoch in range(8)], [1.0 + epoch % 2 for epoch in range(8)]


def runs_with_one_without_signals(make_record, setting, **curves):
    first, *rest = setting.full("laptop")
    runs = [make_record(first.with_(signals=()), **curves)]
    runs += [make_record(spec, **dict.fromkeys(spec.signals, RISING), **curves) for spec in rest]
    return Runs("laptop", runs)


def test_changes_are_read_from_runs_that_measured_them(make_record):
    numbers = fig_s.build(runs_with_one_without_signals(make_record, RELATED_CIFAR10, test_loss=RISING)).numbers
    for key in ("jump.2", "jump.2-5", "jump.5-10", "jump.10-20"):
        assert numbers[key][""].num == 2
    assert numbers["drop"][PER_RUN].num == 2


def test_norms_are_read_at_the_stops_of_runs_that_measured_disparity(make_record):
    result = tab_norm.build(runs_with_one_without_signals(make_record, RELATED_MNIST, parameter_norm=RISING))
    assert {method: number.num for method, number in result.numbers["1.gd"].items()} == {PER_RUN: 2, MEAN_CURVE: 2}
    assert result.numbers["1.end"][""].num == 3
    (row,) = result.tables["norm"].rows
    assert row["at the end"] == result.numbers["1.end"][""]


def test_a_missing_rise_is_not_read_at_the_last_epoch(make_record):
    runs = [
        make_record(spec, test_loss=RISING if spec.seed else UP_AND_DOWN, **dict.fromkeys(spec.signals, RISING))
        for spec in OPTIMIZERS["g"].full("laptop")
    ]
    result = fig_opt.build(Runs("laptop", runs))
    assert result.numbers["g.test.epoch"][PER_RUN].num == 2
    assert result.numbers["g.gd.epoch"][PER_RUN].num == 3
    assert result.remarks["g.test.epoch"] == {PER_RUN: "rose five times in 2 of 3 runs"}
    for key in ("g.apart", "g.test-gd.error"):
        assert result.numbers[key][PER_RUN].num == 2
        assert result.remarks[key] == {PER_RUN: "test loss rose five times in 2 of 3 runs"}


def test_late_changes_are_read_from_long_runs(make_record):
    spec = OPTIMIZERS["h"].full("laptop")[0]
    long = [float(epoch) for epoch in range(30)]
    run = make_record(spec, test_loss=long, **{name: [-value for value in long] for name in spec.signals})
    result = fig_opt.build(Runs("laptop", [run]))
    assert result.numbers["h.late.disparity"][""].mean == -9.0
    assert result.numbers["h.late.loss"][""].mean == 9.0
    short = make_record(spec, test_loss=RISING, **dict.fromkeys(spec.signals, RISING))
    result = fig_opt.build(Runs("laptop", [short]))
    assert "h.late.loss" not in result.numbers
    assert result.remarks["h.late.loss"] == {"": "never lasted longer than 20 epochs"}


def test_a_signal_that_never_stops_equals_no_early_stopping_and_has_a_remark(make_record):
    runs = []
    for spec in (spec for setting in RELATED for spec in setting.specs("laptop")):
        flat = [-1.0 if name == "evidence_based" else 1.0 for name in spec.signals]
        curves = {name: [value] * 8 if value < 0 else RISING for name, value in zip(spec.signals, flat, strict=True)}
        runs.append(
            make_record(spec, **curves, **({} if spec.fold is None else {"val_loss": RISING}), test_loss=RISING)
        )
    result = tab_rw.build(Runs("laptop", runs))
    for protocol in (PER_RUN, MEAN_CURVE):
        assert result.remarks["won.eb"][protocol] == "never stopped in 4 of 4 settings"
        assert result.numbers["won.gd"][protocol].mean == 8
        assert result.numbers["rw_a.none-gd.loss"][protocol].mean == 2.0
    assert "won.gd" not in result.remarks


def test_the_initial_norm_is_that_of_a_run(tmp_path):
    spec = RunSpec(dataset="mnist5k", num_samples=20, scale=0.02, batch_size=10, epochs=1, learning_rate=1e-12)
    record = run(spec.with_(seed=3, init="he_normal"), Store(tmp_path))
    assert record.epochs[0]["parameter_norm"] == pytest.approx(tab_norm.initial_norm(record.spec))
