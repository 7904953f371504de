"""Table robustnessn: twenty stopping thresholds, noisy labels."""

from heldin.lab.reproducing import Item
from paper.settings import NOISY, seconds_of
from paper.tab_robustness import build

ITEM = Item(
    label="tab:robustnessn",
    claim="With noisy labels, over twenty stopping thresholds the mean accuracy is higher with gradient disparity than "
    "with cross-validation, but for MNIST.",
    stage=1,
    specs=lambda profile: [spec for setting in NOISY for spec in setting.specs(profile)],
    build=lambda runs: build(runs, NOISY),
    differs="As tab:kfoldn. A threshold that never fires counts with the last epoch, which is sooner here.",
    seconds=seconds_of,
)
