"""The paper's numbers beside ours."""

from heldin.lab.curves import Estimate
from heldin.lab.reproducing.claims import ANY, Claim, Verdict
from heldin.lab.reproducing.items import Built, Item
from heldin.lab.reproducing.verdicts import MEAN_CURVE, PER_RUN, Judged, statements, summary

ITEM = Item("tab:x", "A claim.", 1, lambda profile: [], lambda runs: Built(), also=("tab:y",))


def one(*claims, **numbers):
    return Judged(ITEM, claims, Built(numbers=numbers), said=str.upper)


def test_a_row_has_the_papers_number_ours_and_the_verdict():
    claim = Claim("tab:x", "error", 20.0, std=1.0)
    table = one(claim, error={ANY: Estimate(21.0, 0.5, 3)}).table()
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
    assert table.title == "tab:x, tab:y: A claim."


def test_where_a_stop_is_involved_there_are_two_verdicts():
    claim = Claim("tab:x", "gain", 1.0, statement=True, text="it gains")
    found = one(claim, gain={PER_RUN: Estimate(-2.0, 1.0, 3), MEAN_CURVE: Estimate(2.0, 1.0, 3)})
    assert found.verdicts == {"gain": {PER_RUN: Verdict.NOT_REPRODUCED, MEAN_CURVE: Verdict.REPRODUCED}}
    (row,) = statements([found]).rows
    assert row["verdict"] == "not reproduced (per run); reproduced (mean curve)"
    assert row["paper"] == "above 0"
    assert not found.table(statements=False).rows


def test_what_a_number_is_compared_with_is_said_without_its_setting():
    claims = (
        Claim("tab:x", "a.gd", 20.0, against="a.cv", reference=0.0),
        Claim("tab:x", "a.cv", 21.0, against="b.gd"),
        Claim("tab:x", "b.gd", 2.0, text="the other setting"),
    )
    found = Judged(ITEM, claims, Built(), said=lambda key: key.replace(".", ": "))
    assert [row["compared with"] for row in found.table().rows] == ["0, cv", "the other setting", "-"]


def test_a_printed_difference_is_claimed_by_its_sign():
    rows = one(Claim("tab:x", "a", -1.2, statement=True), Claim("tab:x", "b", 1.0, statement=True)).table().rows
    assert [row["paper"] for row in rows] == ["below 0 (-1.2)", "above 0"]


def test_remarks_stand_beside_a_number_or_in_its_place():
    claims = Claim("tab:x", "a", 1.0, statement=True), Claim("tab:x", "b", 1.0, statement=True)
    remarks = {"a": {PER_RUN: "stopped in 1 of 3 runs"}, "b": {PER_RUN: "never fired", MEAN_CURVE: "never fired"}}
    numbers = {"a": {PER_RUN: Estimate(2.0, None, 3), MEAN_CURVE: Estimate(3.0, None, 1)}}
    first, second = Judged(ITEM, claims, Built(numbers=numbers, remarks=remarks)).table().rows
    assert first["ours"] == "2 (per run, stopped in 1 of 3 runs); 3 (mean curve)"
    assert second["ours"] == "- (per run, never fired); - (mean curve, never fired)"
    assert second["verdict"] == "not run (per run); not run (mean curve)"


def test_the_summary_counts_verdicts_on_words_and_on_numbers(found):
    rows = summary(found).rows
    assert [row["item"] for row in rows] == ["tab:tiny", "fig:same", "all"]
    assert [row["in words"] for row in rows] == ["0 / 0 / 0 / 1", "-", "0 / 0 / 0 / 1"]
    assert [row["printed numbers"] for row in rows] == ["1 / 0 / 0 / 0", "0 / 0 / 1 / 0", "1 / 0 / 1 / 0"]
