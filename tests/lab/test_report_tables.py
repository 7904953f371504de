"""The tables of the report page: their rows, numbers and notes, against values worked by hand."""

import html
import math
import re

import pytest

from heldin.lab.conclusion import answered
from heldin.lab.grouping import groups
from heldin.lab.report_tables import comparison_html, cost_html, environment_html
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord

SPEC = RunSpec(dataset="digits", num_samples=200, batch_size=50, epochs=8, signals=())
RISING = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]  # its 5th rise is at epoch 5
OVERFITS = [0.5, 0.4, 0.2, 0.3, 0.3, 0.4, 0.6, 0.7]
FIRST = "gradient disparity, t1(5)"


def run(error=OVERFITS, *, val=None, signals=("gradient_disparity",), loss=None, also=None, **changes):
    lines = [
        {
            "epoch": epoch,
            "test_loss": 2 * value if loss is None else loss[epoch],
            "test_error": value,
            **({"val_loss": val[epoch]} if val else {}),
            **(also or {}),
            "signals": dict.fromkeys(signals, RISING[epoch]),
        }
        for epoch, value in enumerate(error)
    ]
    return RunRecord(SPEC.with_(signals=tuple(signals), **changes), tuple(lines), True)


def folded(val, *, seeds=(0,)):
    """Runs without each of two folds, whose validation loss is `val`."""
    return [run(val=val, signals=(), seed=seed, fold=fold, folds=2) for seed in seeds for fold in (0, 1)]


def outcomes(*records):
    (group,) = groups(records)
    return answered(group)


def raw_rows(page):
    return re.findall(r"<tr[^>]*>.*?</tr>", page, re.DOTALL)


def rows(page):
    """The texts of the cells, row by row."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in raw_rows(page)]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]


def row(page, name):
    (found,) = (row for row in rows(page) if row[0] == name)
    return found[1:]


def test_best_epochs_come_first_then_the_signal_the_folds_and_no_early_stopping():
    page = comparison_html(outcomes(run(), *folded(RISING)), "gradient_disparity")
    each = ["gradient disparity", "2-fold", "2+-fold", "2-fold, each fold by itself", "1/2 held out"]
    assert [row[0] for row in rows(page)[2:]] == [
        "best epoch by test loss",
        "best epoch by test accuracy",
        *(f"{name}, t{number}(5)" for name in each for number in (1, 2)),
        "no early stopping",
    ]
    assert [re.search(r'^<tr class="(\w+)"', row)[1] for row in raw_rows(page) if "<tr class" in row] == [
        "over", "oracle", "oracle", "deciding",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("signals", "summary"),
    [
        (("gradient_disparity",), []),
        (("gradient_disparity", "sign"), ["1 other signal"]),
        (("sign", "gradient_disparity", "noise_scale"), ["2 other signals"]),
    ],
    ids=str,
)
def test_other_signals_are_folded_away(signals, summary):
    page = comparison_html(outcomes(run(signals=signals)), "gradient_disparity")
    assert re.findall("<summary>(.*?)</summary>", page) == summary
    shown, _, hidden = page.partition("<details>")
    assert FIRST in shown
    assert ("sign, t1(5)" in shown, "sign, t1(5)" in hidden) == (False, "sign" in signals)


def test_one_seed_has_numbers_and_two_have_deviations():
    alone = comparison_html(outcomes(run()), "gradient_disparity")
    assert row(alone, FIRST) == ["20.0", "5", "40.0", "0.800", "5", "40.0", "0.800"]
    other = run([error + 0.1 for error in OVERFITS], seed=1)
    both = comparison_html(outcomes(run(), other), "gradient_disparity")
    assert row(both, FIRST) == ["20.0", "5.0 ± 0.0", "45.0 ± 7.1", "0.900 ± 0.141", "5", "45.0 ± 7.1", "0.900 ± 0.141"]


def test_a_bar_is_as_long_as_what_was_lost_next_to_the_most():
    def bars(error):
        page = comparison_html(outcomes(run(error)), "gradient_disparity")
        widths = [re.findall(r'style="width:(\d+)%"', row) for row in raw_rows(page)]
        return {name[0]: width[0] for name, width in zip(rows(page), widths, strict=True) if width}

    found = bars(OVERFITS)
    assert (found[FIRST], found["no early stopping"], found["best epoch by test accuracy"]) == ("40", "100", "0")
    assert {*bars([0.5] * 8).values()} == {"0"}


def test_what_is_not_known_is_a_dash_and_what_else_was_recorded_has_its_columns():
    lost = comparison_html(outcomes(run(loss=[1.0] * 5 + [math.nan] * 3)), "gradient_disparity")
    assert row(lost, FIRST)[:4] == ["20.0", "5", "40.0", "-"]
    more = comparison_html(outcomes(run(also={"test_top5": 0.125, "test_auc": 0.75})), "gradient_disparity")
    assert row(more, FIRST)[1:6] == ["5", "40.0", "0.800", "12.5", "0.750"]
    assert re.findall(r'colspan="(\d+)"', more) == ["1", "6", "3"]


def test_notes_stand_below_once_each_and_rows_carry_their_numbers():
    falling = RISING[::-1]
    page = comparison_html(outcomes(run(signals=("cosine",)), *folded(falling)), "cosine")  # bad is a cosine that falls
    names = [row[0] for row in rows(page)]
    assert {"cosine, t1(5) 1 2", "2-fold, t1(5) 1 2", "cosine, t2(5) 3 4", "no early stopping"} <= {*names}
    assert re.findall("<li>(.*?)</li>", page) == [
        f"{seen}: {rule}(5) never fired: there the last epoch counts"
        for rule in ("t1", "t2")
        for seen in ("each run by its own curve", "the mean curve")
    ]


def test_the_cost_is_that_of_one_seed_with_all_its_folds_and_retraining():
    records = [run(), run(seed=1), *folded(RISING, seeds=(0, 1))]
    page = cost_html(SPEC, outcomes(*records), "gradient_disparity", [], None)
    assert rows(page)[0] == ["way of stopping", "epochs trained", "batch gradients"]
    assert row(page, FIRST) == ["6.0", "48"]  # 6 epochs of 4 batches, and 4 probes after each
    assert row(page, "2-fold, t1(5)") == ["12.0", "24"]  # 2 models, 6 epochs each of 2 batches
    assert row(page, "2+-fold, t1(5)") == ["18.0", "48"]  # and 6 epochs of 4 batches
    assert row(page, "1/2 held out, t1(5)") == ["6.0", "12"]
    assert row(page, "no early stopping") == ["8.0", "32"]
    assert "best epoch" not in page


def test_each_environment_has_a_row_with_its_days():
    day = 86400.0
    begun = [
        {"torch": "2.0", "time": 2 * day},
        {"torch": "2.0", "time": 0.0},
        {"torch": "2.1", "cpus": 2},
        {"torch": "2.2", "time": day},
    ]
    assert rows(environment_html(begun)) == [
        ["begun", "torch", "cpus", "times"],
        ["1970-01-01 to 1970-01-03", "2.0", "-", "2"],
        ["-", "2.1", "2", "1"],
        ["1970-01-02", "2.2", "-", "1"],
    ]
    assert environment_html([]) == ""
