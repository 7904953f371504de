"""The paper's numbers next to ours, and questions that several claims answer together."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate
from paper.harness import MEAN_CURVE, NO_PROTOCOL, PER_RUN, Item, Result
from paper.harness.claims import Claim, Verdict
from paper.harness.verdicts import JudgedItem, Question, answers, read_questions, statements, summary

ITEM = Item("tab:x", "A claim.", 1, lambda profile: [], lambda runs: Result(), other_labels=("tab:y",))


def one(*claims, **numbers):
    return JudgedItem(ITEM, claims, Result(numbers=numbers), describe=str.upper)


def test_a_row_has_the_number_of_the_paper_ours_and_the_verdict():
    claim = Claim("tab:x", "error", 20.0, std=1.0)
    table = one(claim, error={NO_PROTOCOL: Estimate(21.0, 0.5, 3)}).table()
    assert table.rows == (
        {
            "claim": "ERROR",
            "paper": "20 ± 1",
            "ours": "21.00 ± 0.50",
            "n": "3",
            "compared with": "-",
            "verdict": "reproduced",
        },
    )
    assert table.title == "tab:x, tab:y. The paper claims: A claim."


def test_a_number_at_a_stop_has_two_verdicts():
    claim = Claim("tab:x", "gain", 1.0, statement=True, text="it gains")
    found = one(claim, gain={PER_RUN: Estimate(-2.0, 1.0, 3), MEAN_CURVE: Estimate(2.0, 1.0, 3)})
    assert found.verdicts == {"gain": {PER_RUN: Verdict.NOT_REPRODUCED, MEAN_CURVE: Verdict.REPRODUCED}}
    (row,) = statements([found]).rows
    assert row["verdict"] == "not reproduced (per run); reproduced (mean curve)"
    assert row["paper"] == "above 0"
    assert not found.table(statements=False).rows


def test_what_a_number_is_compared_with_is_described_without_its_setting():
    claims = (
        Claim("tab:x", "a.gd", 20.0, against="a.cv", reference=0.0),
        Claim("tab:x", "a.cv", 21.0, against="b.gd"),
        Claim("tab:x", "b.gd", 2.0, text="the other setting"),
    )
    found = JudgedItem(ITEM, claims, Result(), describe=lambda key: key.replace(".", ": "))
    assert [row["compared with"] for row in found.table().rows] == ["0, cv", "the other setting", "-"]


def test_only_the_sign_of_a_printed_difference_is_claimed():
    rows = one(Claim("tab:x", "a", -1.2, statement=True), Claim("tab:x", "b", 1.0, statement=True)).table().rows
    assert [row["paper"] for row in rows] == ["below 0 (-1.2)", "above 0"]


def test_remarks_are_shown_next_to_a_number_or_instead_of_it():
    claims = Claim("tab:x", "a", 1.0, statement=True), Claim("tab:x", "b", 1.0, statement=True)
    remarks = {"a": {PER_RUN: "stopped in 1 of 3 runs"}, "b": {PER_RUN: "never fired", MEAN_CURVE: "never fired"}}
    numbers = {"a": {PER_RUN: Estimate(2.0, None, 3), MEAN_CURVE: Estimate(3.0, None, 1)}}
    first, second = JudgedItem(ITEM, claims, Result(numbers=numbers, remarks=remarks)).table().rows
    assert first["ours"] == "2 (per run, stopped in 1 of 3 runs); 3 (mean curve)"
    assert second["ours"] == "- (per run, never fired); - (mean curve, never fired)"
    assert second["verdict"] == "not run (per run); not run (mean curve)"


def test_the_summary_counts_verdicts_on_statements_and_on_numbers(judged):
    rows = summary(judged).rows
    assert [row["item"] for row in rows] == ["tab:tiny", "fig:same", "all"]
    assert [row["statements"] for row in rows] == ["0 / 0 / 0 / 1", "-", "0 / 0 / 0 / 1"]
    assert [row["printed numbers"] for row in rows] == ["1 / 0 / 0 / 0", "0 / 0 / 1 / 0", "1 / 0 / 1 / 0"]


def test_a_sign_answers_a_question_in_the_paper_and_here():
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


def test_without_a_sign_a_reproduced_claim_means_yes():
    claims = Claim("tab:x", "near", 0.0, tolerance=0.5), Claim("tab:x", "far", 0.0, tolerance=0.5)
    found = one(*claims, near={NO_PROTOCOL: Estimate(0.2, None, 3)}, far={NO_PROTOCOL: Estimate(2.0, None, 3)})
    (row,) = answers([Question("The same?", ("tab:*/*",))], [found]).rows
    assert (row["paper"], row["per run"], row["mean curve"]) == ("2 of 2", "1 of 2", "-")


def test_questions_that_were_not_run_are_marked_and_those_without_claims_left_out():
    found = one(Claim("tab:x", "open", 1.0, statement=True))
    asked = [Question("Open?", ("tab:x/open",), yes=1), Question("Of another?", ("fig:*",), yes=1)]
    (row,) = answers(asked, [found]).rows
    assert row["per run"] == "not run"


@pytest.mark.parametrize("num", [1, 5])
def test_without_a_spread_no_answer_is_clear(num):
    found = one(Claim("tab:x", "key", 1.0, statement=True), key={NO_PROTOCOL: Estimate(3.0, None, num)})
    (row,) = answers([Question("So?", ("*",), yes=1)], [found]).rows
    assert row["per run"] == "1 of 1"


def test_only_statements_answer_by_a_sign():
    with pytest.raises(ArgumentError, match=r"tab:x/key, a number"):
        answers([Question("So?", ("*",), yes=1)], [one(Claim("tab:x", "key", 1.0))])


def test_questions_are_read_and_unknown_fields_refused(tmp_path):
    path = tmp_path / "questions.toml"
    assert read_questions(path) == []
    path.write_text('[[question]]\ntext = "So?"\nclaims = ["tab:x/*"]\nyes = 1\n')
    assert read_questions(path) == [Question("So?", ("tab:x/*",), 1)]
    path.write_text('[[question]]\ntext = "So?"\nclaim = ["tab:x/*"]\n')
    with pytest.raises(ArgumentError, match="claim'"):
        read_questions(path)
