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
        {"claim": "ERROR", "paper": "20 ± 1", "ours": "21 ± 0.5", "runs": "3", "verdict": "reproduced"},
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


def test_the_summary_counts_verdicts(found):
    rows = summary(found).rows
    assert [row["item"] for row in rows] == ["tab:tiny", "fig:same", "all"]
    assert [row["reproduced"] for row in rows] == [1, 0, 1]
    assert [row["not reproduced"] for row in rows] == [0, 1, 1]
    assert [row["not run"] for row in rows] == [1, 0, 1]
