"""Table robustness: twenty stopping thresholds, limited data."""

from heldin.lab.reproducing import Item
from paper.settings import LIMITED, LIMITED_CIFAR100, seconds_of
from paper.thresholds import over_twenty

ITEM = Item(
    label="tab:robustness",
    claim="With limited data, over twenty stopping thresholds the mean accuracy is higher with gradient disparity than "
    "with cross-validation, and varies less.",
    stage=1,
    specs=lambda profile: [spec for setting in LIMITED for spec in setting.specs(profile)],
    build=lambda runs: over_twenty(runs, LIMITED, each=(LIMITED_CIFAR100.key,)),
    differs="As tab:kfoldl. A threshold that never fires counts with the last epoch, which is sooner here.",
    seconds=seconds_of,
)
