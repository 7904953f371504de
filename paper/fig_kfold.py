"""Figures kfoldl and kfoldn: curves of the settings that are compared with cross-validation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from heldin.lab.curves import Estimate, curve_of, estimate, value_at
from heldin.lab.methods import StoppingMethod
from heldin.lab.store import RunRecord
from heldin.lab.tables import Cell, Table
from heldin.rules import ConsecutiveRises, NthRise
from paper.correlations import correlations, correlations_by_seed, difference_by_seed
from paper.differences import epoch_difference, epochs_between
from paper.harness import MEAN_CURVE, PER_RUN, PROTOCOLS, Item, Result, Row, RunGroup, Runs, merge
from paper.plots import SettingCurvesDisplay
from paper.settings import DISPARITY, LIMITED, NOISY, Setting, all_runs, seconds_of
from paper.stops import (
    METHOD_NAMES,
    PRINTED_METRICS,
    can_evaluate,
    curve_figure,
    estimate_or_none,
    group_of,
    mean,
    point_estimate,
    stop_remarks,
    stopping_methods,
)

LATER = "correlations"
ENDS = {"loss": "test_loss", "accuracy": "test_error"}
"""What is compared at the end of training, and its curve."""
FIRST_EPOCHS = {0: "all epochs", 5: "without the first 5", 10: "without the first 10"}


def build(runs: Runs, settings: Sequence[Setting]) -> Result:
    """For each setting the curves, how they follow the test loss, and the epochs between the stops of two rules."""
    found = {setting: group for setting in settings if (group := group_of(runs, setting)) is not None}
    groups = {setting: _with_complete_folds(group, setting, runs.profile) for setting, group in found.items()}
    curves = [_curves(group, setting) for setting, group in groups.items()]
    distances = [rule_distances(group, setting, runs.profile) for setting, group in groups.items()]
    tables = {LATER: _later_correlations(groups)} if groups else {}
    return merge(*curves, *distances, Result(tables=tables))


def _with_complete_folds(group: RunGroup, setting: Setting, profile: str) -> RunGroup:
    """Return the same runs without folds of seeds for which not all folds are finished."""
    sets = group.fold_sets(setting.folds.get(profile, 0))
    return replace(group, folded=tuple(record for records in sets.values() for record in records))


def _later_correlations(groups: Mapping[Setting, RunGroup]) -> Table:
    """The correlations with the test loss over all epochs, and without the first ones, in which all curves fall."""
    rows: list[dict[str, Cell]] = []
    for setting, group in groups.items():
        for name, pair in _pairs(group).items():
            found = {first: correlations(*pair, first=first) for first in FIRST_EPOCHS}
            for protocol in PROTOCOLS:
                cells = {FIRST_EPOCHS[first]: each.get(protocol) for first, each in found.items()}
                if any(cells.values()):
                    about = {
                        "setting": setting.title_for(group.setting),
                        "curve": name,
                        "protocol": protocol.replace("_", " "),
                    }
                    rows.append({**about, **cells})
    columns = ("setting", "curve", "protocol", *FIRST_EPOCHS.values())
    return Table(columns, tuple(rows), "Correlation with the test loss")


def _pairs(group: RunGroup) -> dict[str, tuple[list[Sequence[RunRecord]], str, str]]:
    """The runs and the curves that are compared with the test loss."""
    return {
        "disparity": ([group.full], DISPARITY, "test_loss"),
        "validation loss": ([group.folded], "val_loss", "test_loss"),
    }


def _curves(group: RunGroup, setting: Setting) -> Result:
    """The validation loss of the folds and the disparity on all the data, with test losses; both networks compared."""
    key, title = setting.key, setting.title_for(group.setting)
    trained = {"on all the data": group, "on all folds but one": replace(group, full=group.folded, folded=())}
    compared = {name: each for name, each in trained.items() if each.full}
    figures = {f"{key}-{name}": SettingCurvesDisplay(compared, name, title) for name in ENDS.values() if compared}
    return merge(
        curve_figure(f"{key}-cv", group.folded, "val_loss", ("test_loss",), title=title),
        curve_figure(f"{key}-gd", group.full, DISPARITY, ("test_loss", "generalization_loss"), title=title),
        Result(figures=figures),
        Result.from_numbers(_correlations(group, key) | _end_differences(group, key)),
    )


def _end_differences(group: RunGroup, key: str) -> dict[str, dict[str, Estimate]]:
    """The test loss and accuracy at the last epoch on all the data minus the mean over the folds, seed by seed."""
    full, folded = (_last_metrics(records) for records in (group.full, group.folded))
    return {f"{key}.end.{metric}": difference_by_seed(full[metric], folded[metric]) for metric in ENDS}


def _last_metrics(records: Sequence[RunRecord]) -> dict[str, dict[int, float]]:
    """Test loss and accuracy at the last epoch, as printed: for each seed the mean over its runs."""
    found: dict[str, dict[int, list[float]]] = {metric: {} for metric in ENDS}
    for record in records:
        for metric, by_seed in found.items():
            name, convert = PRINTED_METRICS[metric]
            by_seed.setdefault(record.spec.seed, []).append(
                convert(value_at(curve_of(record, name), len(record.epochs) - 1))
            )
    return {metric: {seed: mean(values) for seed, values in by_seed.items()} for metric, by_seed in found.items()}


def _correlations(group: RunGroup, key: str) -> dict[str, dict[str, Estimate]]:
    """Correlate disparity and the validation loss with the test loss; by how much disparity correlates more."""
    pairs = dict(zip(("gd", "val"), _pairs(group).values(), strict=True))
    found = {name: correlations(*pair) for name, pair in pairs.items()}
    gd, val = (correlations_by_seed(*pair) for pair in pairs.values())
    seeds = sorted(gd.keys() & val.keys())
    better = {PER_RUN: estimate([gd[seed] - val[seed] for seed in seeds])} if seeds else {}
    if all(MEAN_CURVE in each for each in found.values()):
        better[MEAN_CURVE] = point_estimate(found["gd"][MEAN_CURVE].mean - found["val"][MEAN_CURVE].mean)
    return {f"{key}.rho.{name}": each for name, each in found.items()} | {f"{key}.rho.gd-val": better}


def rule_distances(group: RunGroup, setting: Setting, profile: str) -> Result:
    """The epochs between the stops of the two rules (the bars of the figure), with disparity and cross-validation.

    A run counts if both rules fire.
    """
    rules = {
        "t2": stopping_methods(setting, profile, ConsecutiveRises()),
        "t1": stopping_methods(setting, profile, NthRise()),
    }
    methods = {name: {rule: each[name] for rule, each in rules.items()} for name in ("cv", "gd")}
    parts = [
        epoch_difference(group, f"{setting.key}.bars.{name}", both, verb="fired") for name, both in methods.items()
    ]
    return merge(*parts, Result.from_rows(_kfold_minus_disparity(group, f"{setting.key}.bars.cv-gd", methods)))


def _kfold_minus_disparity(
    group: RunGroup, key: str, methods: Mapping[str, Mapping[str, StoppingMethod]]
) -> Iterator[Row]:
    """The epochs between the bars of cross-validation minus those between the bars of disparity."""
    named = {f"{rule} of {METHOD_NAMES[name]}": each for name, both in methods.items() for rule, each in both.items()}
    if not can_evaluate(group, *named.values()):
        return
    for protocol in PROTOCOLS:
        cv, gd = (epochs_between(group, [*methods[name].values()], protocol) for name in ("cv", "gd"))
        more = [float(gap - gd[seed]) for seed, gap in cv.items() if seed in gd]
        yield key, protocol, estimate_or_none(more), stop_remarks(group, named, protocol, "fired")


LIMITED_ITEM = Item(
    label="fig:kfoldl",
    claim="With limited data both the validation loss and gradient disparity follow the test loss, and the network "
    "trained on all the data is better in the end.",
    stage=1,
    specs=all_runs(LIMITED),
    build=lambda runs: build(runs, LIMITED),
    laptop="As tab:kfoldl.",
    findings="Both follow the test loss in all three settings, the validation loss more closely than disparity. On "
    "MNIST much of the correlation of disparity comes from the first epochs, in which all curves fall. The network "
    "trained on all the data has the higher accuracy in the end on CIFAR-10 and MNIST, not on CIFAR-100. With "
    "disparity five rises in a row happen in 4 of 11 runs, so that the distance between the two bars is often unknown.",
    at_paper_size="As tab:kfoldl. With AlexNet the correlation of disparity with the test loss comes from the first "
    "epochs, in which both fall: without the first ten it is negative. With VGG-13 (one seed) it is negative over all "
    "epochs and positive without the first five: disparity rises from the first epoch on, while the test loss falls "
    "until epoch 5; after that both rise. With both networks, training on all the data is better in the end.",
    seconds=seconds_of,
    inline=(LATER,),
)
NOISY_ITEM = Item(
    label="fig:kfoldn",
    claim="With noisy labels the validation loss no longer follows the test loss, while gradient disparity does.",
    stage=1,
    specs=all_runs(NOISY),
    build=lambda runs: build(runs, NOISY),
    laptop="As tab:kfoldn.",
    findings="Disparity follows the test loss in both settings. On MNIST the validation loss follows it only weakly "
    "over all epochs, as in the paper; without the first ten epochs the two are similar per run, and on the mean curve "
    "the validation loss follows the test loss more closely. On CIFAR-10 it follows more closely than disparity does, "
    "with noisy labels too.",
    at_paper_size="As tab:kfoldn, one seed. Half of the paper's claim shows here: the validation loss, whose labels "
    "are noisy too, rises from about epoch 25 on, while the test loss still falls. Disparity falls with the test loss "
    "until about epoch 13 and is level afterwards (correlation 0.28 from there on); it does not rise near the end, "
    "where the test error does and the validation loss does.",
    seconds=seconds_of,
    inline=(LATER,),
)
