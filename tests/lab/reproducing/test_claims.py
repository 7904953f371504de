"""Verdicts by rule; claims as they are written down."""

import math

import pytest

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate
from heldin.lab.reproducing.claims import ANY, Claim, Verdict, claims_from_toml, judge

OTHER = Claim("tab:x", "other", 5.0)
YES, SAME, NO, NONE = Verdict.REPRODUCED, Verdict.SAME_DIRECTION, Verdict.NOT_REPRODUCED, Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("claim", "ours", "other", "verdict"),
    [
        ({"value": 4.0, "std": 0.5}, (4.9, None), None, YES),  # within 2 standard deviations
        ({"value": 4.0, "std": 0.5}, (5.1, None), None, NO),
        ({"value": 4.0, "std": 0.3}, (4.9, 9.0), None, NO),  # ours does not widen it
        ({"value": 4.0}, (4.39, 9.0), None, YES),  # without a spread, a tenth of the value
        ({"value": -4.0}, (-4.41, 9.0), None, NO),
        ({"value": 4.0, "tolerance": 0.1}, (4.09, 3.0), None, YES),
        ({"value": 4.0, "tolerance": 0.1}, (4.2, 3.0), None, NO),
        ({"value": 0.9, "reference": 0.0, "tolerance": 0.1}, (0.5, None), None, SAME),
        ({"value": 0.9, "reference": 0.0, "tolerance": 0.1}, (-0.5, None), None, NO),
        ({"value": 4.0, "std": 0.1, "against": "other"}, (8.0, None), 9.0, SAME),  # below the other, as in the paper
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), 9.0, YES),
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), 3.0, NO),  # near, but on the other side
        ({"value": 4.0, "std": 0.1, "against": "other"}, (9.0, None), None, NONE),  # nothing to compare with
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), None, NONE),  # however near
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), math.nan, NONE),
        ({"value": 4.0, "against": "other", "reference": 0.0}, (1.0, None), 9.0, SAME),  # on the side of both
        ({"value": 4.0, "against": "other", "reference": 0.0}, (-1.0, None), 9.0, NO),
        ({"value": 4.0, "against": "other", "reference": 0.0}, (4.0, None), 3.0, NO),
        ({"value": 5.0, "std": 0.1, "against": "other"}, (4.0, None), 4.0, SAME),  # equal in the paper, and equal here
        ({"value": 1.0, "statement": True}, (0.5, 0.3), None, YES),
        ({"value": 1.0, "statement": True}, (0.1, 0.6), None, SAME),  # within its standard error
        ({"value": 1.0, "statement": True}, (-0.5, 0.1), None, NO),
        ({"value": -2.0, "statement": True}, (-0.5, 0.1), None, YES),
        ({"value": -2.0, "statement": True}, (-0.5, None), None, SAME),  # no spread to tell by
        ({"value": -2.0, "statement": True}, (-0.5, math.nan), None, SAME),
        ({"value": 1.0, "statement": True}, (0.0, 0.0), None, NO),
        ({"value": 4.0}, (math.nan, None), None, NONE),
        ({"value": 4.0}, None, None, NONE),
    ],
)
def test_the_verdict_follows_by_rule(claim, ours, other, verdict):
    numbers = {}
    if ours is not None:
        numbers["mine"] = {ANY: Estimate(ours[0], ours[1], 4)}
    if other is not None:
        numbers["other"] = {ANY: Estimate(other, None, 4)}
    asked = Claim("tab:x", "mine", **claim)
    assert judge(asked, numbers, {"mine": asked, "other": OTHER}) is verdict


def test_a_single_run_reproduces_no_statement():
    claim = Claim("tab:x", "mine", 1.0, statement=True)
    assert judge(claim, {"mine": {ANY: Estimate(3.0, None, 1)}}, {}) is SAME


def test_a_number_under_one_protocol_is_not_taken_for_the_other():
    claim = Claim("tab:x", "mine", 1.0, tolerance=0.1)
    numbers = {"mine": {"per_run": Estimate(1.0, None, 3)}}
    assert judge(claim, numbers, {}, "per_run") is YES
    assert judge(claim, numbers, {}, "mean_curve") is NONE


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('["tab:x"]\nnumbers = [{ key = "a", value = 1 }, { key = "a", value = 2 }]', "twice"),
        ('["tab:x"]\nnumbers = [{ key = "a", value = 1, spread = 2 }]', "spread"),
        ('["tab:x"]\ntolerence = 1\nnumbers = [{ key = "a", value = 1 }]', "tolerence"),
    ],
)
def test_claims_that_cannot_be_are_refused(text, word, tmp_path):
    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(ArgumentError, match=word):
        claims_from_toml(tmp_path / "claims.toml")


def test_what_stands_above_the_numbers_holds_for_all(tmp_path):
    (tmp_path / "claims.toml").write_text('["tab:x"]\nwhere = "Table x"\nnumbers = [{ key = "a", value = 1 }]')
    assert claims_from_toml(tmp_path / "claims.toml") == [Claim("tab:x", "a", 1, where="Table x")]
