"""Figures BGP_vs_gen (ResNet-18 on CIFAR-10) and BGP_vs_gen_m (AlexNet on MNIST): disparity and generalization gap."""

from heldin.lab.methods import Kind, StoppingMethod
from paper.correlations import correlations
from paper.harness import Item, Result, RunGroup, Runs, merge
from paper.settings import DISPARITY, RELATED_CIFAR10, RELATED_MNIST, Setting, full_runs, seconds_of
from paper.stops import curve_figure, full_group, stop_numbers, stopping_methods


def build(runs: Runs, setting: Setting) -> Result:
    """Curves and correlations, the stopping epoch of disparity, and the epoch of the lowest test loss."""
    group = full_group(runs, setting)
    if group is None:
        return Result()
    methods = {"stop.gd": stopping_methods(setting, "")["gd"], "stop.best": StoppingMethod(Kind.ORACLE_LOSS)}
    return merge(gap_results(group, setting.title_for(group.setting)), stop_numbers(group, methods, ()))


def gap_results(group: RunGroup, title: str) -> Result:
    """Curves of loss and of error, and the correlations of disparity with the generalization gap."""
    figures, numbers = [], {}
    for part in ("loss", "error"):
        metrics = tuple(f"{which}_{part}" for which in ("train", "test", "generalization"))
        figures.append(curve_figure(part, group.full, DISPARITY, metrics, title=title))
        numbers[f"rho.generalization_{part}"] = correlations([group.full], DISPARITY, f"generalization_{part}")
    return merge(*figures, Result.from_numbers(numbers))


CIFAR10_ITEM = Item(
    label="fig:BGP_vs_gen",
    claim="For ResNet-18 on CIFAR-10, gradient disparity rises when training and test loss diverge.",
    stage=1,
    specs=full_runs([RELATED_CIFAR10]),
    build=lambda runs: build(runs, RELATED_CIFAR10),
    laptop="As tab:RW (c).",
    findings="Disparity follows the generalization gap. Its 5th rise is at epoch 12, when the test loss has been "
    "rising for eight epochs.",
    seconds=seconds_of,
)
MNIST_ITEM = Item(
    label="fig:BGP_vs_gen_m",
    claim="For AlexNet on MNIST, gradient disparity rises when the generalization gap opens.",
    stage=1,
    specs=full_runs([RELATED_MNIST]),
    build=lambda runs: build(runs, RELATED_MNIST),
    laptop="As tab:RW (a).",
    findings="The 5th rise is at about the same epoch as in the paper. Disparity falls in the first three epochs; "
    "after them it is not correlated with the (small) gap.",
    seconds=seconds_of,
)
