"""Figure kfoldl: the curves of the limited settings."""

from heldin.lab.reproducing import Item
from paper.kfold import drawn
from paper.settings import LIMITED, seconds_of

ITEM = Item(
    label="fig:kfoldl",
    claim="With limited data both the validation loss and gradient disparity follow the test loss, and the network "
    "trained on all the data ends up better.",
    stage=1,
    specs=lambda profile: [spec for setting in LIMITED for spec in setting.specs(profile)],
    build=lambda runs: drawn(runs, LIMITED),
    differs="As tab:kfoldl.",
    seconds=seconds_of,
)
