"""The declarations: what is run for each item, nothing twice, and a number for every claim."""

from collections import defaultdict

import pytest
from paper.items import ITEMS
from paper.settings import PROBED_RESNET, PROFILES, RELATED, RESCALED, SEEDS, SEVEN, seconds_of

from heldin.errors import ArgumentError
from heldin.lab.grouping import setting_of
from heldin.lab.reproducing.claims import claims_from_toml
from heldin.lab.reproducing.items import Built, Runs, chosen, in_order
from heldin.lab.reproducing.paper import load_paper
from heldin.lab.reproducing.questions import Question, answers

KNOWN = {item.label: item for item in ITEMS}
UNANSWERED = {  # what the laptop profile cannot answer, and why
    "tab:mrnet": ("abnormal.", "acl.", "meniscus."),  # BreastMNIST stands in
    "fig:batch_size": ("b.", "c."),  # one series of three
}


@pytest.fixture(scope="module")
def claims(pytestconfig):
    return claims_from_toml(pytestconfig.rootpath / "paper" / "claims.toml")


def test_every_item_of_the_paper_is_declared_once():
    labels = [label for item in ITEMS for label in (item.label, *item.also)]
    assert len(labels) == len({*labels})
    tables = "mrnet RWmain RW kfoldlmain kfoldl kfoldnmain kfoldn senmain robustness robustnessn patience norm var"
    figures = (
        "f1 valtrain random DA batch_size batch_size2 width width2 senmain sen fc_mnist0 fc_mnist0_main fc_mnist norm "
        "s train_size_mse train_size2 kfoldl kfoldn mrnet BGP_vs_gen_m BGP_vs_gen fc_cifar10 resnet_cifar100 opt eb "
        "inner_prod"
    )
    wanted = {
        *(f"tab:{name}" for name in tables.split()),
        *(f"fig:{name}" for name in figures.split()),
        "costs",
        "tried",
    }
    assert {*labels} == wanted


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_is_trained_twice(profile):
    trained = defaultdict(set)
    for item in ITEMS:
        for spec in item.specs(profile):
            trained[spec.with_(signals=()).canonical].add(spec)
    again = {spec for specs in trained.values() if len(specs) > 1 for spec in specs}
    allowed = (
        [] if profile == "laptop" else [*RESCALED.full(profile), *PROBED_RESNET.full(profile)]
    )  # two figures measure more
    rest = again - {*allowed}
    assert len({spec.with_(signals=()) for spec in rest}) == len(rest)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_item_has_its_seeds(item, profile):
    seeds = defaultdict(set)
    for spec in item.specs(profile):
        seeds[setting_of(spec).canonical].add(spec.seed)
    assert all(found == {*SEEDS[profile]} for found in seeds.values())
    assert item.claim.endswith(".")
    assert item.differs.endswith(".")


def test_the_paper_profile_has_full_width_and_the_laptop_says_how_long_it_takes():
    for setting in (*SEVEN, *RELATED):
        assert setting.paper.scale == 1.0
        assert setting.laptop.learning_rate * setting.laptop.scale == pytest.approx(setting.paper.learning_rate)
    for item in ITEMS:
        for spec in item.specs("laptop"):
            assert item.seconds(spec) > 0.0, (item.label, spec.title)
    assert seconds_of(SEVEN[0].paper) == 0.0


def test_there_is_soon_something_of_each_item_the_most_important_first():
    order = in_order(ITEMS, "laptop")
    assert [spec.seed for spec in order] == sorted(spec.seed for spec in order)
    first = {spec for setting in (*SEVEN, *RELATED) for spec in setting.specs("laptop", [0])}
    assert {*order[: len(first)]} == first
    assert setting_of(order[0]) == setting_of(SEVEN[2].laptop)  # the smallest
    assert len(order) == len({*order})


def test_claims_and_items_go_together(claims):
    assert {claim.item for claim in claims} == {*KNOWN} - {"tried"}
    keys = {(claim.item, claim.key) for claim in claims}
    assert all((claim.item, claim.against) in keys for claim in claims if claim.against)
    assert all(claim.where for claim in claims)
    assert all(claim.text for claim in claims if claim.statement)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_every_claim_gets_a_number_from_records(item, claims, runs):
    numbers = item.build(runs).numbers
    spared = UNANSWERED.get(item.label, ())
    for claim in claims:
        if claim.item == item.label:
            expected = not any(claim.key.startswith(start) for start in spared)
            silent = claim.key.startswith("c100_r34.") and claim.key.endswith(".epoch")  # where a rule never fires
            assert (claim.key in numbers) == expected or silent, claim.key


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_without_records_nothing_is_claimed(item):
    found = item.build(Runs("laptop", ()))
    assert item.label == "fig:f1" or not (found.numbers or found.tables)


@pytest.fixture(scope="module")
def half(runs):
    return Runs("laptop", runs.records[::2], runs.units)


@pytest.mark.parametrize("item", [item for item in ITEMS if "robust" not in item.label], ids=lambda item: item.label)
def test_half_of_the_records_are_no_trouble(item, half):
    item.build(half)


def test_items_are_found_by_their_labels():
    assert [item.label for item in chosen(KNOWN, ["RWmain", "tab:kfoldl"])] == ["tab:RW", "tab:kfoldl"]
    assert len(chosen(KNOWN, ["all"])) == len(ITEMS)
    with pytest.raises(ArgumentError, match="Did you mean"):
        chosen(KNOWN, ["tab:kfolds"])


def test_every_question_is_asked_of_claims(pytestconfig):
    paper = load_paper(pytestconfig.rootpath / "paper")
    found = paper.judged({item.label: Built() for item in ITEMS})
    assert len(answers(paper.questions, found).rows) == len(paper.questions) > 5
    for question in paper.questions:
        for pattern in question.claims:
            assert Question("", (pattern,)).among(found), pattern
