"""Tables robustness (limited data) and robustnessn (noisy labels): twenty stopping thresholds."""

from collections.abc import Iterator, Sequence

from paper.differences import best_difference
from paper.harness import PROTOCOLS, Item, Result, Row, RunGroup, Runs, merge
from paper.settings import LIMITED, LIMITED_CIFAR100, NOISY, Setting, all_runs, seconds_of
from paper.stops import METHOD_NAMES, group_of, stop_remark
from paper.threshold_sweep import threshold_methods, threshold_outcomes, threshold_results


def build(runs: Runs, settings: Sequence[Setting], *, in_detail: Sequence[str] = ()) -> Result:
    """Best, mean, std and worst over the thresholds, their epochs, and the difference of the best ones."""
    parts = [threshold_results(runs, settings, in_detail=in_detail)]
    for setting in settings:
        group = group_of(runs, setting)
        if group is None:
            continue
        parts += [Result.from_rows(_best_epoch(runs, group, setting, name)) for name in ("gd", "cv")]
        methods = {METHOD_NAMES[name]: threshold_methods(runs, setting, name) for name in ("gd", "cv")}
        if all(methods.values()):
            parts.append(best_difference(group, f"{setting.key}.gd-cv.best", methods, "accuracy"))
    return merge(*parts)


def _best_epoch(runs: Runs, group: RunGroup, setting: Setting, name: str) -> Iterator[Row]:
    """The epoch of the threshold with the best accuracy."""
    for protocol in PROTOCOLS:
        outcomes = threshold_outcomes(runs, setting, name, protocol)
        if outcomes:
            best = min(outcomes, key=lambda outcome: outcome.metrics["test_error"].mean)
            remark = stop_remark(group, best.method, protocol)
            yield f"{setting.key}.{name}.best.epoch", protocol, best.epoch, remark


LIMITED_ITEM = Item(
    label="tab:robustness",
    claim="With limited data, the mean accuracy over twenty stopping thresholds is higher with gradient disparity "
    "than with cross-validation, and varies less, except on MNIST.",
    stage=1,
    specs=all_runs(LIMITED),
    build=lambda runs: build(runs, LIMITED, in_detail=(LIMITED_CIFAR100.key,)),
    laptop="As tab:kfoldl. As in the paper's means, a patience at which one of the two rules does not fire is left out "
    "of best, mean, std and worst. Single thresholds that never fire, also in the linked tables and their means, are "
    "read at the last epoch.",
    seconds=seconds_of,
)
NOISY_ITEM = Item(
    label="tab:robustnessn",
    claim="With noisy labels, the mean accuracy over twenty stopping thresholds is higher with gradient disparity "
    "than with cross-validation, except on MNIST.",
    stage=1,
    specs=all_runs(NOISY),
    build=lambda runs: build(runs, NOISY),
    laptop="As tab:kfoldn. As in the paper's means, a patience at which one of the two rules does not fire is left out "
    "of best, mean, std and worst. Single thresholds that never fire, also in the linked tables and their means, are "
    "read at the last epoch.",
    seconds=seconds_of,
)
