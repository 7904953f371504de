"""The demo: its runs and its results."""

from heldin.lab import demo
from heldin.lab.conclusion import conclude
from heldin.lab.store import Store

SMALL = demo.SETTING.with_(num_samples=60, scale=0.04, batch_size=10, epochs=3)


def test_the_setting_has_few_noisy_digits():
    specs = demo.demo_specs()
    assert len(specs) == len(demo.SEEDS) * 6
    assert {(spec.dataset, spec.model, spec.num_samples, spec.label_noise) for spec in specs} == {
        ("digits", "mlp", 700, 0.5)
    }
    assert all("gradient_disparity" in spec.signals for spec in specs if spec.fold is None)
    assert sorted(spec.fold for spec in specs if spec.fold is not None and spec.seed == 0) == [0, 1, 2, 3, 4]


def test_runs_on_all_the_data_come_first_and_folds_record_no_signals():
    specs = demo.demo_specs(SMALL, seeds=(3, 7))
    assert specs[:2] == [SMALL.with_(seed=3), SMALL.with_(seed=7)]
    assert [(spec.seed, spec.fold) for spec in specs[2:]] == [(seed, fold) for seed in (3, 7) for fold in range(5)]
    assert {(spec.folds, spec.signals) for spec in specs[2:]} == {(5, ())}


def test_description():
    words = demo.describe()
    assert "700 samples of digits, 50 % with a random label" in words
    assert f"{demo.SETTING.epochs} epochs" in words


def test_the_demo_returns_a_table_a_conclusion_and_a_report(tmp_path):
    found = demo.run_demo(Store(tmp_path), jobs=1, setting=SMALL, seeds=(0,))
    assert found.num_computed == 6
    assert found.seconds > 0.0
    assert (len(found.group.full), len(found.group.folded)) == (1, 5)
    assert found.table.columns == demo.COLUMNS
    assert [(row["method"], row["protocol"]) for row in found.table.rows] == [
        (method, protocol)
        for method in (
            "gradient_disparity, t1(5)",
            "gradient_disparity@fixed, t1(5)",
            "5-fold, t1(5)",
            "5+-fold, t1(5)",
            "no early stopping",
            "best epoch by test accuracy",
        )
        for protocol in ("per_run", "mean_curve")
    ]
    assert found.conclusion == conclude(found.group)
    assert found.report == tmp_path / "demo.html"
    assert "<title>heldin demo</title>" in found.report.read_text()
