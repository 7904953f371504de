"""The table of all settings at both sizes."""

from paper.settings import RELATED, SEVEN
from paper.sizes import ITEM, SHOWN, sizes

from heldin.lab.reproducing.items import Runs


def test_a_cell_has_the_papers_number_beside_ours_where_they_differ():
    rows = {row["setting"]: row for row in sizes().rows}
    row = rows["CIFAR-100, ResNet-34, noisy"]
    assert row["training samples"] == "1,280 (50,000)"
    assert row["test samples"] == "2,000 (10,000)"
    assert row["learning rate"] == "0.16 (0.01)"
    assert row["folds"] == "5 (10)"
    assert rows["MNIST, AlexNet, limited"]["training samples"] == "256"
    assert rows["CIFAR-10, VGG-16"]["folds"] == "-"


def test_all_settings_that_are_compared_with_folds_are_shown_once():
    assert {*SEVEN, *RELATED} <= {*SHOWN}
    assert len(sizes().rows) == len(SHOWN) == len({row["setting"] for row in sizes().rows})


def test_it_needs_no_runs():
    assert ITEM.specs("laptop") == []
    assert ITEM.build(Runs("laptop", ())).tables["settings"] == sizes()
