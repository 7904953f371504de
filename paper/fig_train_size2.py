"""Figure train_size2: the size of the training set, VGG-16 and AlexNet."""

from heldin.lab.reproducing import Item
from paper.making import together
from paper.series import ends
from paper.settings import SIZES_MNIST, SIZES_VGG, seconds_of

SERIES = {"vgg16": SIZES_VGG, "alexnet": SIZES_MNIST}
ITEM = Item(
    label="fig:train_size2",
    claim="Gradient disparity and test error fall together as the training set grows, on CIFAR-10 and on MNIST.",
    stage=3,
    specs=lambda profile: [
        s for series in SERIES.values() for setting in series.values() for s in setting.full(profile)
    ],
    build=lambda runs: together(*(ends(runs, key, "training samples", series) for key, series in SERIES.items())),
    differs="640, 1,280 and 2,560 samples of CIFAR-10 at width 1/8 for 25 epochs, 500 to 4,000 of MNIST at width 1/4 "
    "for 50 epochs.",
    seconds=seconds_of,
)
