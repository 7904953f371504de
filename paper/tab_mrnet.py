"""Table mrnet (and figure mrnet): knee injuries; on the laptop BreastMNIST stands in for them."""

from collections.abc import Iterator

from heldin.lab.curves import Group
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import ConsecutiveRises, NthRise
from paper.correlating import correlations, exceeding, mean_over
from paper.differing import difference
from paper.kfold import NAMES
from paper.making import (
    PROTOCOLS,
    Row,
    answers,
    built_of,
    by_seed,
    curves,
    group_of,
    numbered,
    stop_numbers,
    stop_table,
    stops,
    together,
)
from paper.settings import TASKS, Setting, seconds_of

RULES = {"t1": NthRise(), "t2": ConsecutiveRises()}
KNEES = ("abnormal", "acl", "meniscus")


def build(runs: Runs) -> Built:
    """Loss and AUC under both rules; the stand-in has keys of its own, for its numbers are not those of MRNet."""
    parts = []
    for key, setting in TASKS.items():
        group = group_of(runs, setting)
        if group is not None and group.full:
            parts += [_stopped(group, key, setting, runs.profile), _followed(group, key, setting.signals[0])]
    return together(*parts, built_of(_over_tasks(runs)))


def _stopped(group: Group, key: str, setting: Setting, profile: str) -> Built:
    """Loss and AUC at the stops of both rules, and by how much disparity is ahead."""
    parts = []
    for name, rule in RULES.items():
        ways = stops(setting, profile, rule, signal=setting.signals[0])
        ways.pop("cv_plus")
        parts += [
            Built(tables={f"{key}-{name}": stop_table(setting, group, ways)}),
            stop_numbers(group, {f"{key}.{way}.{name}": found for way, found in ways.items()}, ("loss", "auc")),
        ]
        both = {NAMES[way]: found for way, found in ways.items()}
        parts += [difference(group, f"{key}.gd-cv.{name}.{metric}", both, metric) for metric in ("loss", "auc")]
    return together(*parts)


def _followed(group: Group, key: str, signal: str) -> Built:
    """How disparity goes with the generalization loss, and the validation loss of the folds with their test loss."""
    return together(
        curves(f"{key}-gd", group.full, signal, ("test_loss", "generalization_loss")),
        curves(f"{key}-cv", group.folded, "val_loss", ("test_loss",)),
        numbered(
            {
                f"{key}.rho.gd": correlations([group.full], signal, "generalization_loss"),
                f"{key}.rho.val": correlations([group.folded], "val_loss", "test_loss"),
            }
        ),
    )


def _over_tasks(runs: Runs) -> Iterator[Row]:
    """By how much the AUC is higher with disparity, on average over the three tasks; nothing while one is missing."""
    groups = [(TASKS[task], group) for task in KNEES if (group := group_of(runs, TASKS[task])) is not None]
    for name, rule in RULES.items():
        ways = [stops(setting, runs.profile, rule, signal=setting.signals[0]) for setting, _ in groups]
        known = [answers(group, way["gd"], way["cv"]) for (_, group), way in zip(groups, ways, strict=True)]
        if sum(known) < len(KNEES):
            continue
        for protocol in PROTOCOLS:
            gd, cv = (
                [by_seed(group, way[of], protocol, "auc") for (_, group), way in zip(groups, ways, strict=True)]
                for of in ("gd", "cv")
            )
            for number in exceeding(mean_over(gd), mean_over(cv)).values():
                yield f"tasks.gd-cv.{name}.auc", protocol, number, ""


ITEM = Item(
    label="tab:mrnet",
    also=("fig:mrnet",),
    claim="For MRI exams of the knee, stopping by gradient disparity gives a higher AUC and a lower loss than 5-fold "
    "cross-validation. Here BreastMNIST stands in for them.",
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
