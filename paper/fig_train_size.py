"""Figures train_size2 and train_size_mse: the size of the training set, with cross-entropy and with squared error."""

from paper.harness import Item, merge
from paper.settings import SIZES_MNIST, SIZES_MSE, SIZES_VGG, full_runs, seconds_of
from paper.sweeps import final_value_sweep

SWEEPS = {"vgg16": SIZES_VGG, "alexnet": SIZES_MNIST}

CROSS_ENTROPY_ITEM = Item(
    label="fig:train_size2",
    claim="Gradient disparity and test error fall together as the training set grows, on CIFAR-10 and on MNIST.",
    stage=3,
    specs=full_runs(setting for sweep in SWEEPS.values() for setting in sweep.values()),
    build=lambda runs: merge(
        *(final_value_sweep(runs, key, "training samples", sweep) for key, sweep in SWEEPS.items())
    ),
    laptop="640, 1,280 and 2,560 samples of CIFAR-10, VGG-8 of width 1/4 instead of VGG-16, batches of 32, 40 epochs "
    "at most; 500 to 4,000 samples of MNIST, AlexNet of width 1/4, 50 epochs.",
    findings="The test error falls with the size. The disparity of the last epoch varies more between runs than "
    "between sizes; on MNIST it has no trend.",
    seconds=seconds_of,
)
SQUARED_ERROR_ITEM = Item(
    label="fig:train_size_mse",
    claim="With the squared error, too, gradient disparity correlates with test error and test loss as the training "
    "set grows.",
    stage=3,
    specs=full_runs(SIZES_MSE.values()),
    build=lambda runs: final_value_sweep(runs, "mse", "training samples", SIZES_MSE),
    laptop="640, 1,280 and 2,560 samples, VGG-8 of width 1/4 instead of VGG-16, batches of 32, 120 epochs at most.",
    seconds=seconds_of,
)
