"""Figure train_size_mse: the size of the training set, squared error."""

from heldin.lab.reproducing import Item
from paper.series import ends
from paper.settings import SIZES_MSE, seconds_of

ITEM = Item(
    label="fig:train_size_mse",
    claim="With the squared error, too, gradient disparity goes with test error and test loss as the training "
    "set grows.",
    stage=3,
    specs=lambda profile: [spec for setting in SIZES_MSE.values() for spec in setting.full(profile)],
    build=lambda runs: ends(runs, "mse", "training samples", SIZES_MSE),
    differs="640, 1,280 and 2,560 samples at width 1/8, 25 epochs.",
    seconds=seconds_of,
)
