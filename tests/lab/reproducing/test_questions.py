"""What several claims say together."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate
from heldin.lab.reproducing.claims import ANY, Claim
from heldin.lab.reproducing.items import Built, Item
from heldin.lab.reproducing.questions import Question, answers, questions_from_toml
from heldin.lab.reproducing.verdicts import MEAN_CURVE, PER_RUN, Judged

ITEM = Item("tab:x", "A claim.", 1, lambda profile: [], lambda runs: Built())


def one(*claims, **numbers):
    return Judged(ITEM, claims, Built(numbers=numbers))


def test_yes_is_a_sign_in_the_paper_as_here():
    claims = [
        Claim("tab:x", key, value, statement=True)
        for key, value in (("firm", -2.0), ("weak", -1.0), ("lost", -1.0), ("against", 0.5), ("open", -1.0))
    ]
    both = {
        key: {PER_RUN: Estimate(mean, 1.0, 4), MEAN_CURVE: Estimate(-3.0, 1.0, 4)}
        for key, mean in (("firm", -3.0), ("weak", -0.1), ("lost", 1.0), ("against", -1.0))
    }
    (row,) = answers([Question("Is it lower?", ("tab:x/*",), yes=-1)], [one(*claims, **both)]).rows
    assert row == {
        "question": "Is it lower?",
        "paper": "4 of 5",
        "per run": "3 of 4 (2 clearly, 1 clearly not)",
        "mean curve": "4 of 4 (4 clearly)",
        "items": "tab:x",
    }


def test_without_a_sign_yes_is_what_is_reproduced():
    claims = Claim("tab:x", "near", 0.0, tolerance=0.5), Claim("tab:x", "far", 0.0, tolerance=0.5)
    found = one(*claims, near={ANY: Estimate(0.2, None, 3)}, far={ANY: Estimate(2.0, None, 3)})
    (row,) = answers([Question("The same?", ("tab:*/*",))], [found]).rows
    assert (row["paper"], row["per run"], row["mean curve"]) == ("2 of 2", "1 of 2", "-")


def test_what_was_not_run_is_said_and_what_nobody_claims_is_left_out():
    found = one(Claim("tab:x", "open", 1.0, statement=True))
    asked = [Question("Open?", ("tab:x/open",), yes=1), Question("Of another?", ("fig:*",), yes=1)]
    (row,) = answers(asked, [found]).rows
    assert row["per run"] == "not run"


def test_of_a_single_run_it_is_not_said_whether_it_is_clear():
    found = one(Claim("tab:x", "key", 1.0, statement=True), key={ANY: Estimate(3.0, None, 1)})
    (row,) = answers([Question("So?", ("*",), yes=1)], [found]).rows
    assert row["per run"] == "1 of 1"


def test_nor_of_a_number_without_a_spread():
    found = one(Claim("tab:x", "key", 1.0, statement=True), key={ANY: Estimate(3.0, None, 5)})
    (row,) = answers([Question("So?", ("*",), yes=1)], [found]).rows
    assert row["per run"] == "1 of 1"


def test_a_sign_is_asked_of_statements_alone():
    with pytest.raises(ArgumentError, match=r"tab:x/key, a number"):
        answers([Question("So?", ("*",), yes=1)], [one(Claim("tab:x", "key", 1.0))])


def test_questions_are_read_and_misspelt_ones_refused(tmp_path):
    path = tmp_path / "questions.toml"
    assert questions_from_toml(path) == []
    path.write_text('[[question]]\ntext = "So?"\nclaims = ["tab:x/*"]\nyes = 1\n')
    assert questions_from_toml(path) == [Question("So?", ("tab:x/*",), 1)]
    path.write_text('[[question]]\ntext = "So?"\nclaim = ["tab:x/*"]\n')
    with pytest.raises(ArgumentError, match="claim'"):
        questions_from_toml(path)
