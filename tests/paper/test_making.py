"""Our numbers of stopping: what is read at a stop, and what is said where no stop is made."""

import pytest
from paper.making import (
    MEAN_CURVE,
    PER_RUN,
    Built,
    built_of,
    numbered,
    rise_epochs,
    single,
    stop_epochs,
    stop_numbers,
    together,
)

from heldin.lab.curves import Estimate, estimate, groups
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.rules import NthRise

SIGNAL = "gradient_disparity"
SPEC = RunSpec(dataset="digits", epochs=8, signals=(SIGNAL,))
RISING, FALLING = [float(epoch) for epoch in range(8)], [-float(epoch) for epoch in range(8)]
WAY = StoppingMethod(Kind.SIGNAL, SIGNAL, NthRise(5))


@pytest.fixture
def group_with(written):
    def group_with(*curves):
        losses = {"test_loss": [10.0 * epoch for epoch in range(8)]}
        records = [written(SPEC.with_(seed=seed), **{SIGNAL: curve}, **losses) for seed, curve in enumerate(curves)]
        return groups(records)[0]

    return group_with


def test_a_way_that_stops_everywhere_has_no_remark(group_with):
    found = stop_numbers(group_with(RISING, RISING), {"x": WAY}, ("loss",))
    assert found.numbers["x.epoch"][PER_RUN] == estimate([5.0, 5.0])
    assert found.numbers["x.epoch"][MEAN_CURVE] == Estimate(5.0, None, 1)
    assert found.numbers["x.loss"][PER_RUN].mean == 50.0
    assert found.remarks == {}


def test_a_rule_that_fires_in_some_runs_trains_the_others_to_the_end_and_says_so(group_with):
    found = stop_numbers(group_with(RISING, FALLING, FALLING), {"x": WAY}, ("loss",))
    assert found.numbers["x.epoch"][PER_RUN] == estimate([5.0, 7.0, 7.0])
    assert {key: told[PER_RUN] for key, told in found.remarks.items()} == {
        "x.loss": "stopped in 1 of 3 runs",
        "x.epoch": "stopped in 1 of 3 runs",
    }


def test_a_rule_that_never_fires_keeps_its_number_and_says_so(group_with):
    found = stop_numbers(group_with(FALLING, FALLING), {"x": WAY}, ("loss",))
    for protocol in (PER_RUN, MEAN_CURVE):
        assert found.numbers["x.loss"][protocol].mean == 70.0
        assert found.remarks["x.loss"][protocol] == "never stopped"


@pytest.mark.parametrize("kind", [Kind.NEVER, Kind.ORACLE_LOSS])
def test_a_way_without_a_rule_has_no_remark(group_with, kind):
    found = stop_numbers(group_with(FALLING), {"x": StoppingMethod(kind)}, ("loss",))
    assert found.numbers
    assert found.remarks == {}


def test_stops_that_are_not_made_are_missing(group_with):
    group = group_with(RISING, FALLING)
    assert stop_epochs(group, WAY, PER_RUN) == {0: 5}
    assert stop_epochs(group, WAY, MEAN_CURVE) == {}  # the mean is flat
    assert stop_epochs(group_with(RISING, RISING), WAY, MEAN_CURVE) == {None: 5}


def test_a_rise_is_found_at_its_own_epoch_where_a_curve_begins_late(written):
    late = [None, None, *RISING]
    (group,) = groups([written(SPEC, **{SIGNAL: late, "test_loss": late})])
    assert rise_epochs(group, "test_loss", NthRise(5), PER_RUN) == {0: 7}
    assert rise_epochs(group, "test_loss", NthRise(5), MEAN_CURVE) == {None: 7}
    assert stop_epochs(group, WAY, PER_RUN) == {0: 7}


def test_results_are_put_together_with_their_remarks():
    one = built_of([("a", PER_RUN, single(1.0), "stopped"), ("b", PER_RUN, None, "never stopped")])
    other = built_of([("a", MEAN_CURVE, single(2.0), "")])
    found = together(one, Built(tables={"t": "table"}), other, numbered({"c": {"": None}}))
    assert found.numbers == {"a": {PER_RUN: single(1.0), MEAN_CURVE: single(2.0)}}
    assert found.remarks == {"a": {PER_RUN: "stopped"}, "b": {PER_RUN: "never stopped"}}
    assert found.tables == {"t": "table"}
