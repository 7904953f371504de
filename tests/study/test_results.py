"""The results of the study and its page, on records made by hand; and the bundled records."""

import json

import pytest

from heldin.lab.curves import setting_of
from heldin.lab.spec import spec_from
from heldin.lab.store import RunRecord
from study.candidates import PAPER
from study.evaluation import Target, Validation
from study.page import (
    PAGE,
    by_group,
    correlations,
    document,
    failures,
    labels_of,
    network_of,
    page,
    stops_by_best,
    where_it_stops,
    write_page,
)
from study.results import FOLDER, HYPOTHESES, RUNS, Results, bundled_trials
from study.running import CHOSEN
from study.settings import FOLDS, SLOTS

LENGTH = 24
RISING = [1.0] * 8 + [1.0 + 0.5 * step for step in range(1, LENGTH - 7)]  # from epoch 8 on
STEADY = [1.0] * LENGTH
FALLING = [1.0, 0.8, *[0.7] * (LENGTH - 2)]  # the training loss: rules begin after the second epoch


def valley(best):
    return [0.5 + abs(epoch + 1 - best) / 10 for epoch in range(LENGTH)]


@pytest.fixture
def make_results(make_record):
    """Five datasets with two settings and two seeds; folds whose validation loss is lowest after `by_folds` epochs."""

    def make(best, *, fresh, std_detached, by_folds=20):
        records = []
        for number in range(10):
            for seed in (0, 1):
                options = {"dataset": f"npz:data{number // 2}", "rate": 0.1 + number, "seed": seed, "loss": FALLING}
                curve = valley(best)
                errors = [value / 10 for value in curve]
                records.append(
                    make_record(test_loss=curve, test_error=errors, fresh=fresh, std_detached=std_detached, **options)
                )
                lines = [
                    {
                        "epoch": epoch,
                        "val_loss": by,
                        "val_error": by,
                        "test_loss": at,
                        "test_error": at / 10,
                        "signals": {},
                    }
                    for epoch, (by, at) in enumerate(zip(valley(by_folds), curve, strict=True))
                ]
                spec = records[-1].spec
                records += [RunRecord(spec.with_(fold=k, folds=FOLDS), tuple(lines), True) for k in range(FOLDS)]
        full = [record for record in records if record.spec.fold is None]
        settings = {f"slot {record.spec.learning_rate}": record.spec for record in full if record.spec.seed == 0}
        return Results.from_records(records, settings)

    return make


def test_a_candidate_that_is_better_everywhere_becomes_the_default(make_results):
    results = make_results(best=9, fresh=STEADY, std_detached=RISING)  # the paper's rule never stops
    assert results.default() == HYPOTHESES[0].name
    found = results.compared(HYPOTHESES[0].name, Target.LOSS)
    assert found.high < 0.0
    assert all(each.high < 0.0 for each in results.choice_carries_over().values())


def test_the_rule_of_the_paper_stays_where_nothing_is_better(make_results):
    results = make_results(best=13, fresh=RISING, std_detached=STEADY)  # its 5th rise is at the best epoch
    assert results.summary(PAPER.name, Target.LOSS).mean == 0.0
    assert results.eligible() == []
    assert results.default() == PAPER.name
    assert "no candidate meets the conditions, so the paper's rule stays" in page(results)


def test_a_candidate_that_is_clearly_worse_than_cross_validation_does_not(make_results):
    results = make_results(best=20, fresh=STEADY, std_detached=RISING, by_folds=20)
    assert results.compared(HYPOTHESES[0].name, Target.LOSS, Validation.FOLDS.value).low > 0.0
    assert HYPOTHESES[0].name not in results.eligible()


def test_methods_are_compared_on_the_settings_that_both_have(make_results):
    results = make_results(best=9, fresh=STEADY, std_detached=RISING)
    without = Results(results.runs, {}, results.slots)
    assert Validation.FOLDS.value not in without.outcomes
    assert without.compared(PAPER.name, Target.LOSS, Validation.FOLDS.value) is None
    assert without.eligible() == []


def test_the_page_is_written_and_the_same_each_time(make_results, tmp_path):
    results = make_results(best=9, fresh=STEADY, std_detached=RISING)
    folder = tmp_path / "study"
    files = write_page(results, folder)
    before = [path.read_bytes() for path in files]
    text = (folder / PAGE).read_text()
    assert (
        "10 settings on 5 datasets, 10 of them with clean labels; 20 runs on all the data, with up to 2 seeds" in text
    )
    assert f"The default is **{HYPOTHESES[0].name}**." in text
    assert text.count("rise beyond the noise, std_detached") >= 3
    assert [path.read_bytes() for path in write_page(results, folder)] == before


def test_a_fraction_of_the_horizon_is_shown_as_a_reference_and_not_counted(make_results):
    results = make_results(best=13, fresh=RISING, std_detached=STEADY)
    num = len(results.candidates)
    for text in (" ".join(document(results).split()), page(results)):
        assert f"of the {num} candidates, {num - 2} are compared with the paper's rule" in text
        assert f"of the {num - 2} other candidates" in text
        assert "| after 25% of the horizon |" in text


def test_readme_and_documents_say_what_the_page_says():
    root = FOLDER.parent.parent
    _, in_short, by_labels, *_ = (FOLDER.parent / PAGE).read_text().split("\n\n")
    assert in_short.startswith("On ")
    assert by_labels.startswith("With clean labels")
    for name in ("README.md", "docs/worth.md"):
        text = " ".join((root / name).read_text().split())
        assert in_short in text, name
        assert by_labels in text, name


def test_settings_in_which_stopping_is_worse_than_going_on_are_listed_first_by_how_much(make_results):
    results = make_results(best=LENGTH, fresh=RISING, std_detached=STEADY)  # going on is best, the rule stops at 13
    found = failures(results)
    assert len(found.rows) == 20  # ten settings, in both targets
    assert found.rows[0]["the paper's rule"] > 0.0 == found.rows[0]["no early stopping"]


def results_of(*records):
    return Results.from_records(records, {record.spec.title: record.spec for record in records})


def test_regrets_are_averaged_within_groups_of_settings(make_record):
    curve = valley(8)
    clean = [make_record(test_loss=curve, rate=rate) for rate in (0.1, 0.2)]
    noisy = make_record(test_loss=[10 * value for value in curve], label_noise=0.5)
    at_the_end = curve[-1] - 0.5
    rows = by_group(results_of(*clean, noisy), Target.LOSS, "labels", labels_of).rows
    assert [(row["labels"], row["settings"]) for row in rows] == [("clean", 2), ("some are wrong", 1)]
    assert [row["no early stopping"] for row in rows] == pytest.approx([at_the_end, 10 * at_the_end])


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("mlp_dropout", "linear layers"),
        ("mlp_batchnorm", "linear layers, BatchNorm"),
        ("lenet", "a few convolutions"),
        ("cnn_batchnorm", "a few convolutions, BatchNorm"),
        ("vgg8", "deep (AlexNet, VGG-8)"),
    ],
)
def test_networks_are_grouped_by_their_layers(make_record, model, kind):
    assert network_of(make_record(test_loss=STEADY, model=model).spec) == kind


def test_cross_validation_may_choose_its_epoch_by_the_loss_for_both_targets(make_results):
    results = make_results(12, fresh=RISING, std_detached=STEADY, by_folds=12)
    (kind, *_) = Validation
    by_target, by_loss = results.compared(kind.value, Target.ERROR), results.chosen_by_loss(kind)
    assert by_loss == by_target  # here both validation metrics have the same curve


def test_the_page_says_after_how_many_epochs_the_default_stops(make_results):
    results = make_results(12, fresh=RISING, std_detached=STEADY)
    (row,) = stops_by_best(results).rows
    assert (row["best epoch"], row["runs"], row["median best epoch"]) == ("above 5, up to 15", 20, 12.0)
    assert row["the paper's rule"] == 13.0  # the 5th rise of a curve that rises from the 9th epoch on
    assert "the default stops after 13 to 13 epochs (median 13)" in where_it_stops(results)
    assert "100% of the stops are within a quarter of the best epoch" in where_it_stops(results)


def test_correlations_with_the_test_loss_are_those_of_each_rescaling(make_record):
    curve = valley(8)
    record = make_record(test_loss=curve, std=[3.0 - value for value in curve], std_detached=curve, model="mlp")
    (row,) = correlations(results_of(record)).rows
    assert (row["network"], row["std"]) == ("linear layers", "-1.00 (above 0: 0 of 1)")
    assert row["std_detached"] == "+1.00 (above 0: 1 of 1)"
    assert row["pooled_std"] is None  # a constant curve has no correlation


def test_the_settings_are_those_that_the_rule_chooses_from_the_bundled_trials():
    chosen = {each["slot"]: each["setting"] for each in json.loads(CHOSEN.read_text())}
    slots = [slot for slot in SLOTS if slot.name in chosen]
    assert len(slots) == len(chosen)
    for slot in slots:
        last = bundled_trials(slot)[-1]
        setting = chosen[slot.name]
        assert last.passes == (setting is not None)
        if setting is not None:
            assert setting_of(last.setting).id == setting_of(spec_from(setting)).id


def test_bundled_runs_are_those_of_the_settings():
    files = list((FOLDER / RUNS).glob("*.gz"))
    results = Results.bundled()
    assert len({run.setting for run in results.runs}) == len(files)
