"""The rule that gives verdicts, and the file of claims."""

import math

import pytest

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate
from paper.harness.claims import NO_PROTOCOL, Claim, Verdict, is_clear, judge, read_claims

OTHER = Claim("tab:x", "other", 5.0)
YES, SAME, NO, NONE = Verdict.REPRODUCED, Verdict.SAME_DIRECTION, Verdict.NOT_REPRODUCED, Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("claim", "ours", "other", "verdict"),
    [
        ({"value": 4.0, "std": 0.5}, (4.9, None), None, YES),  # within 2 standard deviations
        ({"value": 4.0, "std": 0.5}, (5.1, None), None, NO),
        ({"value": 4.0, "std": 0.3}, (4.9, 9.0), None, NO),  # our spread does not count
        ({"value": 4.0}, (4.39, 9.0), None, YES),  # without a printed spread, a tenth of the value
        ({"value": -4.0}, (-4.41, 9.0), None, NO),
        ({"value": 4.0, "tolerance": 0.1}, (4.09, 3.0), None, YES),
        ({"value": 4.0, "tolerance": 0.1}, (4.2, 3.0), None, NO),
        ({"value": 0.9, "reference": 0.0, "tolerance": 0.1}, (0.5, None), None, SAME),
        ({"value": 0.9, "reference": 0.0, "tolerance": 0.1}, (-0.5, None), None, NO),
        ({"value": 4.0, "std": 0.1, "against": "other"}, (8.0, None), 9.0, SAME),  # below the other, as in the paper
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), 9.0, YES),
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), 3.0, NO),  # close, but on the other side
        ({"value": 4.0, "std": 0.1, "against": "other"}, (9.0, None), None, NONE),  # nothing to compare with
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), None, NONE),  # even if it is close
        ({"value": 4.0, "std": 0.1, "against": "other"}, (4.0, None), math.nan, NONE),
        ({"value": 4.0, "against": "other", "reference": 0.0}, (1.0, None), 9.0, SAME),  # on the side of both
        ({"value": 4.0, "against": "other", "reference": 0.0}, (-1.0, None), 9.0, NO),
        ({"value": 4.0, "against": "other", "reference": 0.0}, (4.0, None), 3.0, NO),
        ({"value": 5.0, "std": 0.1, "against": "other"}, (4.0, None), 4.0, SAME),  # equal in the paper, and equal here
        ({"value": 1.0, "statement": True}, (0.5, 0.3), None, YES),
        ({"value": 1.0, "statement": True}, (0.1, 0.6), None, SAME),  # within its standard error
        ({"value": 1.0, "statement": True}, (-0.5, 0.1), None, NO),
        ({"value": -2.0, "statement": True}, (-0.5, 0.1), None, YES),
        ({"value": -2.0, "statement": True}, (-0.5, None), None, SAME),  # no spread
        ({"value": -2.0, "statement": True}, (-0.5, math.nan), None, SAME),
        ({"value": 1.0, "statement": True}, (0.0, 0.0), None, NO),
        ({"value": 4.0}, (math.nan, None), None, NONE),
        ({"value": 4.0}, None, None, NONE),
    ],
)
def test_verdicts(claim, ours, other, verdict):
    numbers = {}
    if ours is not None:
        numbers["mine"] = {NO_PROTOCOL: Estimate(ours[0], ours[1], 4)}
    if other is not None:
        numbers["other"] = {NO_PROTOCOL: Estimate(other, None, 4)}
    mine = Claim("tab:x", "mine", **claim)
    assert judge(mine, numbers, {"mine": mine, "other": OTHER}) is verdict


def test_a_number_under_one_protocol_does_not_count_for_the_other():
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
def test_invalid_claims_are_refused(text, word, tmp_path):
    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(ArgumentError, match=word):
        read_claims(tmp_path / "claims.toml")


def test_fields_of_an_item_apply_to_all_its_claims(tmp_path):
    (tmp_path / "claims.toml").write_text('["tab:x"]\nwhere = "Table x"\nnumbers = [{ key = "a", value = 1 }]')
    assert read_claims(tmp_path / "claims.toml") == [Claim("tab:x", "a", 1, where="Table x")]


def test_two_values_are_never_clear():
    """They exceed their standard error whenever they have the same sign."""
    assert not is_clear(Estimate(5.0, 1.0, 2))
    assert is_clear(Estimate(5.0, 1.0, 3))
