"""The declarations: the runs of each item, and a number for every claim."""

import ast
from collections import defaultdict
from dataclasses import replace

import pytest

from heldin.lab.curves import Estimate, setting_of
from paper import choice
from paper.choice import SEED
from paper.harness import MEAN_CURVE, Result, Runs
from paper.harness.claims import Verdict, judge
from paper.harness.items import run_order, select_items
from paper.harness.running import PROFILES
from paper.harness.verdicts import headline_table
from paper.items import ITEMS, PAPER
from paper.key_names import KEY_NAMES, SETTINGS, describe_key
from paper.settings import KFOLD_SETTINGS, RELATED, RESCALED, SEEDS, SHORT_RUN_SEEDS, seconds_of
from paper.settings_table import SETTINGS as LISTED_SETTINGS
from paper.settings_table import settings_table
from paper.stops import PROTOCOL_TEXT

UNANSWERED = {  # what the laptop profile cannot answer
    "tab:mrnet": ("abnormal.", "acl.", "meniscus.", "tasks."),  # BreastMNIST is used instead
    "fig:batch_size": ("b.", "c."),  # one sweep of three
    **dict.fromkeys(  # no network learns CIFAR-100 with half of the labels random
        ("tab:kfoldn", "fig:kfoldn", "fig:senmain", "tab:robustnessn", "costs"), ("c100_r18_noisy", "c100_r34_noisy")
    ),
    "fig:resnet_cifar100": ("c100.",),
    "tab:var": ("c10_vgg19",),  # one VGG of two
    "fig:opt": ("b.", "c.", "d."),  # the same
}
NOT_IN_THE_PAPER = {"alternatives", "settings", "choice"}
ALLOWED = {"heldin.lab", "heldin.rules", "heldin.signals", "heldin.errors"}

all_items = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)


@pytest.fixture(scope="module")
def unrun():
    """All items without results."""
    return PAPER.judge({item.label: Result() for item in ITEMS})


def test_every_item_of_the_paper_is_declared_once():
    labels = [label for item in ITEMS for label in (item.label, *item.other_labels)]
    assert len(labels) == len({*labels})
    tables = "mrnet RWmain RW kfoldlmain kfoldl kfoldnmain kfoldn senmain robustness robustnessn patience norm var"
    figures = (
        "f1 valtrain random DA batch_size batch_size2 width width2 senmain sen fc_mnist0 fc_mnist0_main fc_mnist norm "
        "s train_size_mse train_size2 kfoldl kfoldn mrnet BGP_vs_gen_m BGP_vs_gen fc_cifar10 resnet_cifar100 opt eb "
        "inner_prod"
    )
    expected = {*(f"tab:{name}" for name in tables.split()), *(f"fig:{name}" for name in figures.split()), "costs"}
    assert {*labels} == expected | NOT_IN_THE_PAPER
    assert [item.label for item in select_items(PAPER.items, ["RWmain", "tab:kfoldl"])] == ["tab:RW", "tab:kfoldl"]


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_is_trained_twice(profile):
    trained = defaultdict(set)
    for item in ITEMS:
        for spec in item.specs(profile):
            trained[spec.with_(signals=()).canonical].add(spec)
    repeated = {spec for specs in trained.values() if len(specs) > 1 for spec in specs}
    repeated -= {*RESCALED.full(profile)}  # these measure more signals
    assert len({spec.with_(signals=()) for spec in repeated}) == len(repeated)


@all_items
@pytest.mark.parametrize("profile", PROFILES)
def test_every_item_has_all_seeds(item, profile):
    seeds, seconds = defaultdict(set), defaultdict(float)
    for spec in item.specs(profile):
        seeds[setting_of(spec)].add(spec.seed)
        seconds[setting_of(spec)] = max(seconds[setting_of(spec)], item.seconds(spec))
    expected = {SEED} if item is choice.ITEM else {*SEEDS[profile]}  # a seed that no other run has
    for setting, found in seeds.items():
        assert found == expected or (found == {*SHORT_RUN_SEEDS} and 0.0 < seconds[setting] < 60.0)
    assert item.claim.endswith(".")
    assert item.laptop.endswith(".")


def test_the_paper_profile_has_full_width_and_the_laptop_profile_a_duration():
    for setting in (*KFOLD_SETTINGS, *RELATED):
        assert setting.paper.scale == 1.0
    for item in ITEMS:
        for spec in item.specs("laptop"):
            assert item.seconds(spec) > 0.0, (item.label, spec.title)
    assert seconds_of(KFOLD_SETTINGS[0].paper) == 0.0


def test_the_most_important_runs_come_first():
    order = run_order(ITEMS, "laptop")
    assert [spec.seed for spec in order] == sorted(spec.seed for spec in order)
    first = {spec for setting in (*KFOLD_SETTINGS, *RELATED) for spec in setting.specs("laptop", [0])}
    assert {*order[: len(first)]} == first
    assert setting_of(order[0]) == setting_of(KFOLD_SETTINGS[2].laptop)  # the smallest
    assert len(order) == len({*order})


def test_every_item_has_claims_and_every_claim_an_item():
    assert {claim.item for claim in PAPER.claims} == {*PAPER.items} - NOT_IN_THE_PAPER
    keys = {(claim.item, claim.key) for claim in PAPER.claims}
    assert all((claim.item, claim.against) in keys for claim in PAPER.claims if claim.against)
    assert all(claim.where for claim in PAPER.claims)
    assert all(claim.text for claim in PAPER.claims if claim.statement)


@all_items
def test_every_claim_gets_a_number_or_a_remark(item, results):
    result = results[item.label]
    for claim in PAPER.claims:
        if claim.item == item.label:
            expected = not any(claim.key.startswith(start) for start in UNANSWERED.get(item.label, ()))
            assert (claim.key in result.numbers or claim.key in result.remarks) == expected, claim.key
    for key in result.remarks.keys() - result.numbers.keys():
        words = "; ".join(result.remarks[key].values())
        assert any(word in words for word in ("never", "did not", "stopped in")), (key, words)


@pytest.mark.parametrize("label", sorted(UNANSWERED.keys() - {"costs"}))  # invented runs take no time
def test_the_paper_profile_answers_what_the_laptop_profile_cannot(label, invented_runs):
    item = PAPER.items[label]
    result = item.build(invented_runs(item, "paper"))
    claimed = {claim.key for claim in PAPER.claims if claim.item == label}
    missing = claimed - result.numbers.keys() - result.remarks.keys()
    assert {key for key in missing if not key.startswith("standin.")} <= {"acl.baseline.auc"}  # of another work


@all_items
def test_items_build_without_records_and_with_half_of_them(item, runs):
    found = item.build(Runs("laptop", ()))
    assert item.label in ("fig:f1", "settings", "choice") or not (found.numbers or found.tables)
    item.build(Runs("laptop", runs.records[::2], runs.unit_seconds))


def test_ten_headlines_and_further_ones_have_claims(unrun):
    assert len(headline_table(PAPER.headlines, {"laptop": unrun}).rows) == len(PAPER.headlines)
    assert sum(not headline.further for headline in PAPER.headlines) == 10
    for headline in PAPER.headlines:
        for pattern in headline.claims:
            assert replace(headline, claims=(pattern,)).select(unrun), pattern


def test_the_headline_on_label_noise_is_about_disparity(unrun):
    (headline,) = (each for each in PAPER.headlines if "level of label noise" in each.text)
    found = [f"{claim.item}/{claim.key}" for _, claim in headline.select(unrun) if claim.item != "fig:eb"]
    assert not [key for key in found if "gap" in key or "test_" in key]
    assert len(found) == len({*found}) == 9
    assert "fig:inner_prod/b.order.gd" not in found  # the same number as mnist.order.all of fig:random


def test_a_norm_that_grows_by_four_percent_is_not_reproduced():
    (claim,) = (claim for claim in PAPER.claims if (claim.item, claim.key) == ("tab:norm", "4.gd"))
    found = {growth: judge(claim, {claim.key: {"": Estimate(growth, 0.001, 3)}}, {}) for growth in (1.004, 1.04)}
    assert found == {1.004: Verdict.REPRODUCED, 1.04: Verdict.NOT_REPRODUCED}


def test_a_negative_correlation_is_not_reproduced_even_if_it_is_the_larger_one():
    claims = {claim.key: claim for claim in PAPER.claims if claim.item == "tab:var"}
    numbers = {"rw_a.gd": {"": Estimate(-0.2, 0.1, 3)}, "rw_a.var": {"": Estimate(-0.4, 0.1, 3)}}
    assert judge(claims["rw_a.gd"], numbers, claims) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize("label", ["tab:robustness", "tab:robustnessn", "tab:patience"])
def test_tables_of_one_protocol_name_it(label, results):
    for table in results[label].tables.values():
        assert table.title.endswith(PROTOCOL_TEXT[MEAN_CURVE])
        assert not {"gd", "cv"} & {*table.columns}


@pytest.mark.parametrize("label", ["tab:RW", "tab:kfoldl", "tab:kfoldn", "tab:mrnet"])
def test_no_method_is_listed_twice(label, results):
    for table in results[label].tables.values():
        rows = [tuple(str(row.get(column)) for column in table.columns[:2]) for row in table.rows]
        assert len(rows) == len({*rows})


def test_the_table_of_settings_shows_the_papers_numbers_that_differ_and_which_networks_learn(runs):
    table = settings_table(runs.only(PAPER.items["settings"].specs("laptop")))
    rows = {row["setting"]: row for row in table.rows}
    row = rows["CIFAR-10, VGG-13, noisy"]
    assert row["network"] == "vgg8 (vgg13)"
    assert row["training samples"] == "5,000 (50,000)"
    assert row["test samples"] == "2,000 (10,000)"
    assert row["learning rate"] == "0.005 (0.01)"
    assert row["folds"] == "5 (10)"
    assert rows["MNIST, AlexNet, limited"]["training samples"] == "256"
    assert rows["CIFAR-100, ResNet-34, noisy"]["folds"] == "- (10)"
    assert rows["CIFAR-100, ResNet-34, noisy"]["learns"] == "not run"
    assert rows["CIFAR-10, VGG-16"]["folds"] == "-"
    assert rows["MNIST, AlexNet, limited"]["learns"] == "no: training error (5 of 5)"
    assert row["learns"] == "yes (3 of 3 runs)"
    assert settings_table(Runs("laptop", ())).rows[0]["learns"] == "not run"
    assert rows["MNIST, AlexNet, noisy"]["training samples"] == "2,000 (5,120 of 60,000)"
    assert {*KFOLD_SETTINGS, *RELATED} <= {*LISTED_SETTINGS}
    assert len(rows) == len(LISTED_SETTINGS)


@pytest.mark.parametrize(
    ("key", "description"),
    [
        ("c10_vgg13.gd.loss", "CIFAR-10, VGG-13, limited: disparity, test loss"),
        ("c100_r34.cv.t2_3.top5", "CIFAR-100, ResNet-34, limited: k-fold, t2, patience 3, top-5 accuracy"),
        ("mnist_alexnet.cv.p25.accuracy", "MNIST, AlexNet, limited: k-fold, t1, patience 25, test accuracy"),
        ("alone", "alone"),
    ],
)
def test_keys_are_described(key, description):
    assert describe_key(key) == description
    assert len({*SETTINGS.values()}) == len(SETTINGS)
    assert not KEY_NAMES.keys() & SETTINGS.keys()


@pytest.mark.parametrize("path", sorted(PAPER.folder.rglob("*.py")), ids=lambda path: path.name)
def test_paper_imports_the_public_parts_of_heldin_only(path):
    is_command = path.name in ("commands.py", "running.py")  # they share options and the checks of a store
    allowed = ALLOWED | {"heldin.cli"} if is_command else ALLOWED
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert not name.startswith("heldin") or ".".join(name.split(".")[:2]) in allowed, name
