"""Tables robustness (limited data) and robustnessn (noisy labels): twenty stopping thresholds."""

from collections.abc import Sequence

from paper.differences import best_difference
from paper.harness import PROTOCOLS, Item, Result, Runs, merge
from paper.settings import LIMITED, LIMITED_CIFAR100, NOISY, Setting, all_runs, seconds_of
from paper.stops import METHOD_NAMES, group_of
from paper.threshold_sweep import counting_thresholds, threshold_results

LEFT_OUT = (
    "As in the paper's means, a patience at which one of the two rules does not fire is left out of best, mean, std "
    "and worst, and of their epochs. Single thresholds that never fire, also in the linked tables and their means, are "
    "read at the last epoch."
)


def build(runs: Runs, settings: Sequence[Setting], *, in_detail: Sequence[str] = ()) -> Result:
    """Best, mean, std and worst over the thresholds, their epochs, and the difference of the best ones."""
    parts = [threshold_results(runs, settings, in_detail=in_detail)]
    for setting in settings:
        group = group_of(runs, setting)
        if group is None:
            continue
        counting = {
            protocol: {METHOD_NAMES[name]: counting_thresholds(runs, setting, name, protocol) for name in ("gd", "cv")}
            for protocol in PROTOCOLS
        }
        parts.append(best_difference(group, f"{setting.key}.gd-cv.best", counting))
    return merge(*parts)


LIMITED_ITEM = Item(
    label="tab:robustness",
    claim="With limited data, the mean accuracy over twenty stopping thresholds is higher with gradient disparity "
    "than with cross-validation, and varies less, except on MNIST.",
    stage=1,
    specs=all_runs(LIMITED),
    build=lambda runs: build(runs, LIMITED, in_detail=(LIMITED_CIFAR100.key,)),
    laptop=f"As tab:kfoldl. {LEFT_OUT}",
    at_paper_size="As tab:kfoldl.",
    seconds=seconds_of,
)
NOISY_ITEM = Item(
    label="tab:robustnessn",
    claim="With noisy labels, the mean accuracy over twenty stopping thresholds is higher with gradient disparity "
    "than with cross-validation, except on MNIST.",
    stage=1,
    specs=all_runs(NOISY),
    build=lambda runs: build(runs, NOISY),
    laptop=f"As tab:kfoldn. {LEFT_OUT}",
    at_paper_size="As tab:kfoldn.",
    seconds=seconds_of,
)
