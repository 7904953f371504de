"""Table mrnet (and figure mrnet): knee injuries; on the laptop BreastMNIST stands in for them."""

from heldin.lab.figures import CurvesDisplay
from heldin.lab.grouping import Group
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import ConsecutiveRises, NthRise
from paper.making import correlations, difference, group_of, stop_numbers, stop_table, stops
from paper.settings import TASKS, seconds_of

RULES = {"t1": NthRise(), "t2": ConsecutiveRises()}


def build(runs: Runs) -> Built:
    """Loss and AUC under both rules; the stand-in has keys of its own, for its numbers are not those of MRNet."""
    tables, figures, numbers = {}, {}, {}
    for key, setting in TASKS.items():
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        signal = setting.signals[0]
        for name, rule in RULES.items():
            ways = stops(setting, runs.profile, rule, signal=signal)
            ways.pop("cv_plus")
            tables[f"{key}-{name}"] = stop_table(setting, group, ways)
            numbers.update(
                stop_numbers(group, key, {f"{way}.{name}": found for way, found in ways.items()}, ("loss", "auc"))
            )
            for metric in ("loss", "auc"):
                ahead = difference(group, ways["gd"], ways["cv"], metric)
                numbers.update({f"{key}.gd-cv.{name}.{metric}": ahead} if ahead else {})
        numbers.update(_followed(group, key, signal))
        figures[f"{key}-gd"] = CurvesDisplay(group.full, signal, ("test_loss", "generalization_loss"))
        if group.folded:
            figures[f"{key}-cv"] = CurvesDisplay(group.folded, "val_loss", ("test_loss",))
    return Built(tables=tables, figures=figures, numbers=numbers)


def _followed(group: Group, key: str, signal: str) -> dict:
    """How disparity goes with the generalization loss, and the validation loss of the folds with their test loss."""
    found = {
        f"{key}.rho.gd": correlations([group], signal, "generalization_loss"),
        f"{key}.rho.val": correlations([Group(group.setting, group.folded, ())], "val_loss", "test_loss"),
    }
    return {name: value for name, value in found.items() if value}


ITEM = Item(
    label="tab:mrnet",
    also=("fig:mrnet",),
    claim="For MRI exams of the knee, stopping by gradient disparity gives a higher AUC and a lower loss than 5-fold "
    "cross-validation.",
    stage=2,
    specs=lambda profile: [spec for setting in TASKS.values() for spec in setting.specs(profile)],
    build=build,
    differs="A stand-in: MRNet needs registration and hours of a GPU. BreastMNIST (624 ultrasound images for training, "
    "156 for testing, malignant or not) with the AlexNet for MNIST at width 1/4, batches of 32 and a learning rate of "
    "0.04, as in the limited MNIST setting; no pretrained weights. The paper's numbers are shown beside it, not "
    "compared.",
    seconds=seconds_of,
    lacking="the exams, and AlexNet's ImageNet weights (a spec has no field for a file with initial weights)",
)
