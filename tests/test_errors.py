"""The exceptions, and the argument checks: what was expected, what was found, what to do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldin import errors
from heldin.errors import (
    ArgumentError,
    HeldinError,
    HeldinWarning,
    near_match,
    require_choice,
    require_integer,
    require_number,
)

BASES = {
    "ArgumentError": ValueError,
    "UnknownArgumentError": TypeError,
    "UnmeasurableError": ArgumentError,
    "BatchesError": ValueError,
    "NoSpreadError": errors.BatchesError,
    "NotPositiveError": errors.BatchesError,
    "LossError": ValueError,
    "NotFiniteError": errors.LossError,
    "MissingExtraError": ImportError,
    "StoreError": OSError,
    "DamagedRunError": errors.StoreError,
    "DataError": ValueError,
}


def test_every_error_is_a_heldin_error_and_the_matching_built_in_one():
    ours = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and kind is not HeldinError}
    assert {name: kind for name, kind in ours.items() if issubclass(kind, Exception)}.keys() - {"HeldinWarning"} == {
        *BASES
    }
    for name, base in BASES.items():
        assert issubclass(ours[name], HeldinError)
        assert issubclass(ours[name], base)


def test_a_warning_is_not_an_error():
    assert issubclass(HeldinWarning, UserWarning)
    assert not issubclass(HeldinWarning, HeldinError)


@pytest.mark.parametrize("found", [0, -3, 1.0, "1", None, True, math.nan], ids=repr)
def test_anything_but_an_integer_of_at_least_the_bound_is_an_error(found):
    with pytest.raises(ArgumentError) as error:
        require_integer("patience", found, at_least=1, remedy="The paper uses 5.")
    expected = f"should be an integer of at least 1. Found `patience = {found!r}`. The paper uses 5."
    assert str(error.value) == f"Parameter `patience` {expected}"


@pytest.mark.parametrize("found", [math.nan, math.inf, -math.inf, 10**400, "1", None, True, 1j], ids=str)
def test_anything_but_a_finite_number_is_an_error(found):
    with pytest.raises(ArgumentError) as error:
        require_number("level", found, remedy="Write 0.0.")
    words = "an integer of 1329 bits" if found == 10**400 else repr(found)
    assert str(error.value) == f"Parameter `level` should be a finite number. Found `level = {words}`. Write 0.0."


@pytest.mark.parametrize(("require", "plain"), [(require_integer, "int"), (require_number, "float")])
def test_a_number_of_numpy_is_refused_with_its_plain_form(require, plain):
    with pytest.raises(ArgumentError, match=rf"Found `patience = .*5\)`\. Pass a plain \w+: {plain}\(patience\)\.$"):
        require("patience", np.int64(5), at_least=1, remedy="The paper uses 5.")


def test_long_values_are_shortened_in_messages():
    with pytest.raises(ArgumentError, match=r"Found `rule = 'a{199}\.\.\. \(5002 characters\)`\.$"):
        require_choice("rule", "a" * 5000, ["nth_rise"])
    with pytest.raises(ArgumentError, match="Found `rule = an integer of 16610 bits`"):
        require_choice("rule", 10**5000, ["nth_rise"])
    with pytest.raises(ArgumentError, match=r"should be an integer below 2\*\*63. Found `patience = 92233720368547758"):
        require_integer("patience", 2**63, at_least=1, remedy="The paper uses 5.")


def test_the_error_for_a_number_below_the_bound_names_the_bound():
    with pytest.raises(
        ArgumentError, match=r"should be a finite number of at least 0.5. Found `beta = 0.25`. Try 1.2."
    ):
        require_number("beta", 0.25, at_least=0.5, remedy="Try 1.2.")


@settings(max_examples=25)
@given(st.integers(-9, 9), st.integers(-9, 9))
def test_numbers_of_at_least_the_bound_are_accepted_and_no_others(value, bound):
    for require, values in ((require_integer, (value,)), (require_number, (value, float(value)))):
        for one in values:
            if value >= bound:
                require("x", one, at_least=bound, remedy="")
            else:
                with pytest.raises(ArgumentError, match=rf"at least {bound}\. Found `x = {value}"):
                    require("x", one, at_least=bound, remedy="")


def test_the_error_for_an_unknown_choice_names_all_choices_and_the_closest():
    with pytest.raises(ArgumentError) as error:
        require_choice("mode", "trian", iter(["train", "eval"]))
    assert str(error.value) == (
        "Parameter `mode` should be one of 'train', 'eval'. Found `mode = 'trian'`. Did you mean 'train'?"
    )
    require_choice("mode", "eval", iter(["train", "eval"]))


@pytest.mark.parametrize(
    ("found", "suggestion"),
    [
        ("gradient_dispartiy", " Did you mean 'gradient_disparity'?"),
        ("cosin", " Did you mean 'cosine'?"),
        ("xyz", ""),
        (5, ""),
    ],
    ids=repr,
)
def test_the_closest_word_is_suggested_if_there_is_one(found, suggestion):
    assert near_match(found, ["gradient_disparity", "cosine", "sign"]) == suggestion


def test_a_topic_is_warned_about_once_with_the_caller_as_its_location():
    warn_once = errors.WarnOnce()
    with pytest.warns(HeldinWarning) as caught:
        for topic, message in (("batches", "Few batches."), ("batches", "Other text."), ("loss", "No loss.")):
            warn_once(topic, message)
    assert [str(one.message) for one in caught] == ["Few batches. (Shown once.)", "No loss. (Shown once.)"]
    assert all(one.filename == __file__ for one in caught)
    assert warn_once.topics == {"batches", "loss"}
