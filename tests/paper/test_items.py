"""The declarations: what is run for each item, nothing twice, and a number for every claim."""

from collections import defaultdict

import pytest
from paper.items import ITEMS
from paper.making import MEAN_CURVE, SEEN
from paper.settings import PROBED_RESNET, PROFILES, RELATED, RESCALED, SEEDS, SEVEN, seconds_of

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate, setting_of
from heldin.lab.reproducing.claims import Verdict, claims_from_toml, judge
from heldin.lab.reproducing.items import Built, Runs, chosen, in_order
from heldin.lab.reproducing.paper import load_paper
from heldin.lab.reproducing.questions import Question, answers

KNOWN = {item.label: item for item in ITEMS}
UNANSWERED = {  # what the laptop profile cannot answer, and why
    "tab:mrnet": ("abnormal.", "acl.", "meniscus.", "tasks."),  # BreastMNIST stands in
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
        "sizes",
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
    assert {claim.item for claim in claims} == {*KNOWN} - {"tried", "sizes"}
    keys = {(claim.item, claim.key) for claim in claims}
    assert all((claim.item, claim.against) in keys for claim in claims if claim.against)
    assert all(claim.where for claim in claims)
    assert all(claim.text for claim in claims if claim.statement)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_every_claim_gets_a_number_from_records(item, claims, runs):
    built = item.build(runs)
    spared = UNANSWERED.get(item.label, ())
    for claim in claims:
        if claim.item == item.label:
            expected = not any(claim.key.startswith(start) for start in spared)
            assert (claim.key in built.numbers or claim.key in built.remarks) == expected, claim.key


@pytest.mark.parametrize("label", ["tab:mrnet", "fig:batch_size"])
def test_the_full_size_answers_what_the_laptop_cannot(label, claims, runs_for):
    built = KNOWN[label].build(runs_for(KNOWN[label], "paper"))
    missing = {claim.key for claim in claims if claim.item == label} - built.numbers.keys() - built.remarks.keys()
    assert {key for key in missing if not key.startswith("standin.")} <= {"acl.baseline.auc"}  # that of others


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_only_where_nothing_happened_a_remark_stands_in_place_of_a_number(item, runs):
    built = item.build(runs)
    for key in built.remarks.keys() - built.numbers.keys():
        words = "; ".join(built.remarks[key].values())
        assert any(word in words for word in ("never", "did not", "stopped in")), (key, words)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_without_records_nothing_is_claimed(item):
    found = item.build(Runs("laptop", ()))
    needs_none = ("fig:f1", "sizes")
    assert item.label in needs_none or not (found.numbers or found.tables)


@pytest.fixture(scope="module")
def half(runs):
    return Runs("laptop", runs.records[::2], runs.units)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
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


def test_disparity_is_asked_for_not_the_generalization_gap(pytestconfig):
    paper = load_paper(pytestconfig.rootpath / "paper")
    (asked,) = (question for question in paper.questions if "level of label noise" in question.text)
    found = [
        f"{claim.item}/{claim.key}"
        for _, claim in asked.among(paper.judged({item.label: Built() for item in ITEMS}))
        if claim.item != "fig:eb"
    ]
    assert not [key for key in found if "gap" in key or "test_" in key]
    assert len(found) == len({*found}) == 9
    assert "fig:inner_prod/b.order.gd" not in found  # mnist.order.all of fig:random once more


def test_norms_that_grow_by_four_percent_do_not_hardly_grow(claims):
    (claim,) = (claim for claim in claims if (claim.item, claim.key) == ("tab:norm", "4.gd"))
    found = {grown: judge(claim, {claim.key: {"": Estimate(grown, 0.001, 3)}}, {}) for grown in (1.004, 1.04)}
    assert found == {1.004: Verdict.REPRODUCED, 1.04: Verdict.NOT_REPRODUCED}


def test_a_negative_correlation_is_not_the_same_direction_though_it_is_the_larger_one(claims):
    known = {claim.key: claim for claim in claims if claim.item == "tab:var"}
    numbers = {"rw_a.gd": {"": Estimate(-0.2, 0.1, 3)}, "rw_a.var": {"": Estimate(-0.4, 0.1, 3)}}
    assert judge(known["rw_a.gd"], numbers, known) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize("label", ["tab:robustness", "tab:robustnessn", "tab:patience"])
def test_a_table_of_one_protocol_says_which(label, runs):
    for table in KNOWN[label].build(runs).tables.values():
        assert table.title.endswith(SEEN[MEAN_CURVE])
        assert not {"gd", "cv"} & {*table.columns}


def test_no_way_is_listed_twice(runs):
    for label in ("tab:RW", "tab:kfoldl", "tab:kfoldn", "tab:mrnet"):
        for table in KNOWN[label].build(runs).tables.values():
            rows = [(row["method"], row["protocol"]) for row in table.rows]
            assert len(rows) == len({*rows}), label


def test_every_question_is_about_something(pytestconfig):
    paper = load_paper(pytestconfig.rootpath / "paper")
    judged = paper.judged({label: Built() for label in KNOWN})
    for question in paper.questions:
        for pattern in question.claims:
            assert Question(question.text, (pattern,), question.yes).among(judged), pattern
