"""The paper's numbers next to ours, and headlines: what several claims say together."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate
from paper.harness import MEAN_CURVE, NO_PROTOCOL, PER_RUN, Item, Result
from paper.harness.claims import Claim, Verdict
from paper.harness.verdicts import Headline, JudgedItem, headline_table, read_headlines, summary

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
    (row,) = found.table(statements=True).rows
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
    assert second["verdict"] == "never stopped (per run); never stopped (mean curve)"


def test_a_number_whose_counterpart_was_not_run_is_not_run_also_if_some_rules_did_not_fire():
    claim = Claim("tab:x", "gd", 38.0, against="cv")
    numbers = {"gd": {PER_RUN: Estimate(37.0, None, 1)}}
    remarks = {"gd": {PER_RUN: "4 of 20 thresholds did not fire"}}
    (row,) = JudgedItem(ITEM, (claim,), Result(numbers=numbers, remarks=remarks)).table().rows
    assert row["verdict"].startswith("not run (per run)")


def test_the_summary_counts_verdicts_on_statements_and_on_numbers(judged):
    rows = summary(judged).rows
    assert [row["item"] for row in rows] == ["tab:tiny", "fig:same", "all"]
    assert [row["statements"] for row in rows] == ["0 / 0 / 0 / 1", "-", "0 / 0 / 0 / 1"]
    assert [row["printed numbers"] for row in rows] == ["1 / 0 / 0 / 0", "0 / 0 / 1 / 0", "1 / 0 / 1 / 0"]


LAPTOP = "ours, at laptop size"
PAPER = "ours, at the paper's size"


def test_a_headline_has_the_papers_numbers_ours_at_each_size_and_a_verdict():
    claims = [
        Claim("tab:x", key, value, statement=True)
        for key, value in (("firm", -2.0), ("weak", -1.0), ("lost", -1.0), ("against", 0.5), ("open", -1.0))
    ]
    both = {
        key: {PER_RUN: Estimate(mean, 1.0, 4), MEAN_CURVE: Estimate(-3.0, 1.0, 4)}
        for key, mean in (("firm", -3.0), ("weak", -0.1), ("lost", 1.0), ("against", -1.0))
    }
    headline = Headline("It is lower.", ("tab:x/*",), sign=-1, unit="points")
    at_size = one(*claims, lost={PER_RUN: Estimate(1.0, None, 1)})
    (row,) = headline_table([headline], {"laptop": [one(*claims, **both)], "paper": [at_size]}).rows
    assert row == {
        "claim": "It is lower.",
        "paper": "-0.75 points, 4 of 5",  # 1 and -1 stand for a sign, so the mean is over the printed numbers
        PAPER: "+1 points, 0 of 1",  # the paper prints only a sign there
        LAPTOP: "-2 points (paper there: -0.75 points), 3 of 4 (2 clearly, 1 clearly not); "
        "on the mean curve -3 points, 4 of 4 (4 clearly)",
        "verdict": "unclear (paper's size, 1 seed); holds (laptop)",
        "items": "tab:x",
    }


@pytest.mark.parametrize(
    ("agreeing", "verdict"),
    [(0, "does not hold"), (2, "does not hold"), (3, "partly"), (4, "holds"), (6, "holds")],
)
def test_the_verdict_on_a_headline_follows_from_how_many_comparisons_agree(agreeing, verdict):
    num = 6
    signs = [1.0 if index < agreeing else -1.0 for index in range(num)]
    claims = [Claim("tab:x", str(index), 1.0, statement=True) for index in range(num)]
    numbers = {str(index): {NO_PROTOCOL: Estimate(sign, 0.1, 3)} for index, sign in enumerate(signs)}
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"laptop": [one(*claims, **numbers)]}).rows
    assert row["verdict"] == f"{verdict} (laptop)"


@pytest.mark.parametrize(
    ("agreeing", "other", "verdict"), [(5, -9.0, "partly"), (1, 9.0, "partly"), (5, -1.0, "holds")]
)
def test_a_headline_whose_mean_has_the_other_sign_holds_partly(agreeing, other, verdict):
    """Most comparisons say one thing, and a single large one makes the mean say another."""
    values = [1.0 if index < agreeing else -1.0 for index in range(6)]
    values[-1 if other < 0 else 0] = other
    claims = [Claim("tab:x", str(index), 2.0, statement=True) for index in range(6)]
    numbers = {str(index): {NO_PROTOCOL: Estimate(value, 0.1, 3)} for index, value in enumerate(values)}
    headline = Headline("Yes.", ("*",), sign=1, unit="points")
    (row,) = headline_table([headline], {"laptop": [one(*claims, **numbers)]}).rows
    assert row["verdict"] == f"{verdict} (laptop)"


def test_a_headline_is_unclear_if_no_comparison_is_clear():
    claims = [Claim("tab:x", str(index), 1.0, statement=True) for index in range(3)]
    numbers = {str(index): {PER_RUN: Estimate(0.1 * (index + 1), 1.0, 2)} for index in range(3)}
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"paper": [one(*claims, **numbers)]}).rows
    assert row["verdict"] == "unclear (paper's size, 2 seeds)"


@pytest.mark.parametrize(("num", "std", "verdict"), [(1, None, "unclear"), (2, 0.1, "unclear"), (3, 0.1, "holds")])
def test_a_headline_needs_three_seeds(num, std, verdict):
    found = one(Claim("tab:x", "a", 1.0, statement=True), a={NO_PROTOCOL: Estimate(1.0, std, num)})
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"paper": [found]}).rows
    assert row["verdict"] == f"{verdict} (paper's size, {num} seed{'s' * (num > 1)})"


def test_the_verdict_on_the_mean_curve_is_given_where_it_differs():
    claim = Claim("tab:x", "a", 1.0, statement=True)
    found = one(claim, a={PER_RUN: Estimate(0.5, 2.0, 3), MEAN_CURVE: Estimate(2.0, 0.1, 3)})
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"paper": [found], "laptop": [found]}).rows
    assert row[LAPTOP] == row[PAPER] == "1 of 1 (0 clearly); on the mean curve 1 of 1 (1 clearly)"
    size, laptop = row["verdict"].split("; ")
    assert size == "unclear (paper's size, 3 seeds, holds on the mean curve)"
    assert laptop == "unclear (laptop, holds on the mean curve)"


def test_the_mean_curve_of_few_seeds_has_no_verdict():
    claim = Claim("tab:x", "a", 1.0, statement=True)
    found = one(claim, a={PER_RUN: Estimate(-0.5, None, 1), MEAN_CURVE: Estimate(-0.5, None, 1)})
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"paper": [found]}).rows
    assert row["verdict"] == "unclear (paper's size, 1 seed)"


def test_a_verdict_at_the_papers_size_names_the_fewest_and_the_most_seeds():
    claims = [Claim("tab:x", key, 1.0, statement=True) for key in ("many", "single")]
    found = one(*claims, many={PER_RUN: Estimate(1.0, 0.1, 5)}, single={PER_RUN: Estimate(2.0, None, 1)})
    (row,) = headline_table([Headline("Yes.", ("*",), sign=1)], {"paper": [found]}).rows
    assert (row[PAPER], row["verdict"]) == ("2 of 2 (1 clearly)", "holds (paper's size, 1 to 5 seeds)")


def test_without_a_sign_a_reproduced_claim_agrees():
    claims = Claim("tab:x", "near", 0.0, tolerance=0.5), Claim("tab:x", "far", 0.0, tolerance=0.5)
    found = one(*claims, near={NO_PROTOCOL: Estimate(0.2, None, 3)}, far={NO_PROTOCOL: Estimate(2.0, None, 3)})
    (row,) = headline_table([Headline("The same.", ("tab:*/*",))], {"laptop": [found]}).rows
    assert (row["paper"], row[LAPTOP], row[PAPER]) == ("2 of 2", "1 of 2", "not run")


def test_headlines_that_were_not_run_are_marked_and_those_without_claims_left_out():
    found = one(Claim("tab:x", "open", 1.0, statement=True))
    headlines = [Headline("Open.", ("tab:x/open",), sign=1), Headline("Of another.", ("fig:*",), sign=1)]
    (row,) = headline_table(headlines, {"laptop": [found]}).rows
    assert row[LAPTOP] == row["verdict"] == "not run"


@pytest.mark.parametrize("num", [1, 5])
def test_without_a_spread_nothing_agrees_clearly(num):
    found = one(Claim("tab:x", "key", 1.0, statement=True), key={NO_PROTOCOL: Estimate(3.0, None, num)})
    (row,) = headline_table([Headline("So.", ("*",), sign=1)], {"laptop": [found]}).rows
    assert row[LAPTOP] == "1 of 1"


def test_only_statements_are_judged_by_a_sign():
    with pytest.raises(ArgumentError, match=r"tab:x/key, a number"):
        headline_table([Headline("So.", ("*",), sign=1)], {"laptop": [one(Claim("tab:x", "key", 1.0))]})


def test_headlines_are_read_and_unknown_fields_refused(tmp_path):
    path = tmp_path / "headlines.toml"
    assert read_headlines(path) == []
    path.write_text('[[headline]]\ntext = "So."\nclaims = ["tab:x/*"]\nsign = 1\nfurther = true\n')
    assert read_headlines(path) == [Headline("So.", ("tab:x/*",), 1, further=True)]
    path.write_text('[[headline]]\ntext = "So."\nclaim = ["tab:x/*"]\n')
    with pytest.raises(ArgumentError, match="claim'"):
        read_headlines(path)
