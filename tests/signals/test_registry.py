"""Signals by name, and the table of them."""

import pytest

import heldin
from heldin import Cosine, GradientDisparity, GradientWeightAlignment, NoiseScale
from heldin.errors import ArgumentError
from heldin.rules import Level, Patience, Smoothed
from heldin.signals import REGISTRY, from_label, labelled
from heldin.signals.registry import _short


def test_a_name_stands_for_the_signal_with_its_default_options():
    assert labelled("gradient_disparity") == {"gradient_disparity": GradientDisparity()}
    assert labelled(["cosine", GradientDisparity()]) == {"cosine": Cosine(), "gradient_disparity": GradientDisparity()}


def test_two_variants_carry_their_options():
    found = labelled([GradientDisparity(), GradientDisparity(rescale="none")])
    assert list(found) == ["gradient_disparity", "gradient_disparity[rescale=none]"]


@pytest.mark.parametrize(
    ("signals", "word"),
    [("gradient_dispariti", "Did you mean 'gradient_disparity'"), ([], "empty"), (["cosine", Cosine()], "twice")],
    ids=["a slip", "none", "twice"],
)
def test_what_is_no_list_of_signals_is_refused(signals, word):
    with pytest.raises(ArgumentError, match=word):
        labelled(signals)


def test_the_table_has_a_full_row_for_each_signal():
    table = heldin.list_signals()
    assert {row["name"] for row in table} == set(REGISTRY)
    assert len(table) == len(REGISTRY)
    assert all(value for row in table for value in row.values())


def test_the_table_keeps_families_together():
    families = [row["family"] for row in heldin.list_signals()]
    assert len([f for f, before in zip(families, [None, *families], strict=False) if f != before]) == len({*families})


def test_the_table_prints_one_line_a_signal():
    lines = str(heldin.list_signals()).splitlines()
    assert len(lines) == len(REGISTRY) + 1
    assert lines[0].split()[:3] == ["name", "needs", "cost"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Level(0.0), "Level(0.0)"),
        (Patience(10), "Patience(10)"),
        (Smoothed(Patience(10), window=10), "Smoothed(Patience(10), 10)"),
    ],
    ids=str,
)
def test_a_rule_is_written_with_the_arguments_that_matter(rule, expected):
    assert _short(rule) == expected


@pytest.mark.parametrize(
    "signal",
    [GradientDisparity(), GradientDisparity(rescale="none", normalize=True), NoiseScale(unbiased=False)],
    ids=lambda signal: signal.label,
)
def test_a_label_can_be_read_back(signal):
    assert from_label(signal.label) == signal


@pytest.mark.parametrize(
    ("label", "word"),
    [("cosin", "'cosine'"), ("gradient_disparity[rescal=none]", "'rescale'"), ("cosine[s=1]", "none"), (3, "3")],
    ids=str,
)
def test_a_label_that_is_none_is_refused(label, word):
    with pytest.raises(ArgumentError, match=word):
        from_label(label)


@pytest.mark.parametrize(
    ("label", "signal"),
    [
        ("noise_scale[unbiased=false]", NoiseScale(unbiased=False)),
        ("gradient_disparity[rescale=none, normalize=True]", GradientDisparity(rescale="none", normalize=True)),
        ("gwa[head=1]", GradientWeightAlignment(head="1")),
        ("gwa[beta=2]", GradientWeightAlignment(beta=2)),
    ],
    ids=str,
)
def test_options_are_read_as_what_they_stand_for(label, signal):
    assert from_label(label) == signal


@pytest.mark.parametrize(
    ("label", "word"), [("noise_scale[unbiased=no]", "True or False"), ("gwa[beta=large]", "a number")], ids=str
)
def test_options_that_are_something_else_are_refused(label, word):
    with pytest.raises(ArgumentError, match=word):
        from_label(label)


@pytest.mark.parametrize(
    ("signals", "word"),
    [
        (GradientDisparity, r"write GradientDisparity\(\)"),
        (lambda gram: 1.0, "@heldin.signal"),
        (None, "None"),
        ("all", "measure"),
        (["all"], "measure"),
    ],
    ids=["a class", "a function", "nothing", "all", "all in a list"],
)
def test_what_is_no_signal_is_refused_with_the_remedy(signals, word):
    with pytest.raises(ArgumentError, match=word):
        labelled(signals)
