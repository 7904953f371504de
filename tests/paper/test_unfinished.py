"""Items of a store in which a run lacks something, or in which something never happens: the rest is read."""

from paper.making import MEAN_CURVE, PER_RUN
from paper.settings import OPTIMIZERS, PROBED_RESNET, RELATED, RIVALS_MNIST

from heldin.lab.reproducing import Runs
from paper import fig_opt, fig_s, tab_norm, tab_rw

RISING, UP_AND_DOWN = [float(epoch + 1) for epoch in range(8)], [1.0 + epoch % 2 for epoch in range(8)]


def with_one_that_lacks_signals(written, setting, **curves):
    first, *rest = setting.full("laptop")
    runs = [written(first.with_(signals=()), **curves)]
    runs += [written(spec, **dict.fromkeys(spec.signals, RISING), **curves) for spec in rest]
    return Runs("laptop", runs)


def test_jumps_are_those_of_the_runs_that_measured_them(written):
    numbers = fig_s.build(with_one_that_lacks_signals(written, PROBED_RESNET, test_loss=RISING)).numbers
    for key in ("jump.2", "jump.2-5", "jump.5-10", "jump.10-20"):
        assert numbers[key][""].num == 2
    assert numbers["drop"][PER_RUN].num == 2


def test_norms_are_read_at_the_stops_of_the_runs_that_have_one(written):
    built = tab_norm.build(with_one_that_lacks_signals(written, RIVALS_MNIST, parameter_norm=RISING))
    assert {way: number.num for way, number in built.numbers["1.gd"].items()} == {PER_RUN: 2, MEAN_CURVE: 2}
    assert built.numbers["1.end"][""].num == 3
    (row,) = built.tables["norm"].rows
    assert row["at the end"] == built.numbers["1.end"][""]


def test_a_rise_that_is_missing_is_not_the_last_epoch(written):
    runs = [
        written(spec, test_loss=RISING if spec.seed else UP_AND_DOWN, **dict.fromkeys(spec.signals, RISING))
        for spec in OPTIMIZERS["c"].full("laptop")
    ]
    built = fig_opt.build(Runs("laptop", runs))
    assert built.numbers["c.test.epoch"][PER_RUN].num == 2
    assert built.numbers["c.gd.epoch"][PER_RUN].num == 3
    assert built.remarks["c.test.epoch"] == {PER_RUN: "rose five times in 2 of 3 runs"}
    for key in ("c.apart", "c.test-gd.error"):
        assert built.numbers[key][PER_RUN].num == 2
        assert built.remarks[key] == {PER_RUN: "test loss rose five times in 2 of 3 runs"}


def test_what_changes_late_is_read_of_runs_that_last(written):
    spec = OPTIMIZERS["h"].full("laptop")[0]
    long = [float(epoch) for epoch in range(30)]
    run = written(spec, test_loss=long, **{name: [-value for value in long] for name in spec.signals})
    built = fig_opt.build(Runs("laptop", [run]))
    assert built.numbers["h.late.disparity"][""].mean == -9.0
    assert built.numbers["h.late.loss"][""].mean == 9.0
    short = written(spec, test_loss=RISING, **dict.fromkeys(spec.signals, RISING))
    built = fig_opt.build(Runs("laptop", [short]))
    assert "h.late.loss" not in built.numbers
    assert built.remarks["h.late.loss"] == {"": "never lasted longer than 20 epochs"}


def test_a_signal_that_never_stops_wins_what_no_early_stopping_wins_and_says_so(written):
    runs = []
    for spec in (spec for setting in RELATED for spec in setting.specs("laptop")):
        flat = [-1.0 if name == "evidence_based" else 1.0 for name in spec.signals]
        curves = {name: [value] * 8 if value < 0 else RISING for name, value in zip(spec.signals, flat, strict=True)}
        runs.append(written(spec, **curves, **({} if spec.fold is None else {"val_loss": RISING}), test_loss=RISING))
    built = tab_rw.build(Runs("laptop", runs))
    for protocol in (PER_RUN, MEAN_CURVE):
        assert built.remarks["won.eb"][protocol] == "never stopped in 4 of 4 settings"
        assert built.numbers["won.gd"][protocol].mean == 8
        assert built.numbers["rw_a.none-gd.loss"][protocol].mean == 2.0
    assert "won.gd" not in built.remarks
