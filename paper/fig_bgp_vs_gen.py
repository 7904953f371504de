"""Figure BGP_vs_gen: ResNet-18 on CIFAR-10."""

from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import Built, Item, Runs
from paper.gap import beside_gap
from paper.making import group_of, stop_numbers, stops, together
from paper.settings import RIVALS_CIFAR10, Setting, seconds_of


def build(runs: Runs, setting: Setting) -> Built:
    """Curves and correlations, where disparity says stop, and where the test loss is lowest."""
    group = group_of(runs, setting)
    if group is None or not group.full:
        return Built()
    ways = {"stop.gd": stops(setting, "")["gd"], "stop.best": StoppingMethod(Kind.ORACLE_LOSS)}
    return together(beside_gap(runs, setting), stop_numbers(group, ways, ()))


ITEM = Item(
    label="fig:BGP_vs_gen",
    claim="For ResNet-18 on CIFAR-10, gradient disparity rises when training and test loss part.",
    stage=1,
    specs=lambda profile: RIVALS_CIFAR10.full(profile),
    build=lambda runs: build(runs, RIVALS_CIFAR10),
    differs="As tab:RW (c).",
    found="The disparity falls for most of the 25 epochs, for the reason given with tab:var, and rises lastingly "
    "only when the training loss nears 0, long after the test loss has turned.",
    seconds=seconds_of,
)
