"""Our exceptions and the checks that raise them: what was found, what was expected, what to do."""

from __future__ import annotations

import math

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

ALSO = {
    "ArgumentError": ValueError,
    "UnservedError": ArgumentError,
    "BatchesError": ValueError,
    "NoSpreadError": errors.BatchesError,
    "LossError": ValueError,
    "NotFiniteError": errors.LossError,
    "MissingExtraError": ImportError,
    "StoreError": OSError,
    "DamagedRunError": errors.StoreError,
    "DataError": ValueError,
}


def test_every_error_is_ours_and_the_one_a_caller_would_look_for():
    ours = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and kind is not HeldinError}
    assert {name: kind for name, kind in ours.items() if issubclass(kind, Exception)}.keys() - {"HeldinWarning"} == {
        *ALSO
    }
    for name, builtin in ALSO.items():
        assert issubclass(ours[name], HeldinError)
        assert issubclass(ours[name], builtin)


def test_a_warning_is_no_error():
    assert issubclass(HeldinWarning, UserWarning)
    assert not issubclass(HeldinWarning, HeldinError)


@pytest.mark.parametrize("found", [0, -3, 1.0, "1", None, True, math.nan], ids=repr)
def test_what_is_no_integer_of_at_least_the_bound_is_refused(found):
    with pytest.raises(ArgumentError) as refused:
        require_integer("patience", found, at_least=1, remedy="The paper uses 5.")
    expected = f"should be an integer of at least 1. Found `patience = {found!r}`. The paper uses 5."
    assert str(refused.value) == f"Parameter `patience` {expected}"


@pytest.mark.parametrize("found", [math.nan, math.inf, -math.inf, 10**400, "1", None, True, 1j], ids=str)
def test_what_is_no_finite_number_is_refused(found):
    with pytest.raises(ArgumentError) as refused:
        require_number("level", found, remedy="Write 0.0.")
    assert str(refused.value) == f"Parameter `level` should be a finite number. Found `level = {found!r}`. Write 0.0."


def test_a_number_below_its_bound_is_refused_with_the_bound():
    with pytest.raises(
        ArgumentError, match=r"should be a finite number of at least 0.5. Found `beta = 0.25`. Try 1.2."
    ):
        require_number("beta", 0.25, at_least=0.5, remedy="Try 1.2.")


@settings(max_examples=25)
@given(st.integers(-9, 9), st.integers(-9, 9))
def test_numbers_from_the_bound_on_are_taken_and_no_others(value, bound):
    for require, values in ((require_integer, (value,)), (require_number, (value, float(value)))):
        for one in values:
            if value >= bound:
                require("x", one, at_least=bound, remedy="")
            else:
                with pytest.raises(ArgumentError, match=rf"at least {bound}\. Found `x = {value}"):
                    require("x", one, at_least=bound, remedy="")


def test_an_unknown_name_is_refused_with_all_choices_and_the_nearest():
    with pytest.raises(ArgumentError) as refused:
        require_choice("mode", "trian", iter(["train", "eval"]))
    assert str(refused.value) == (
        "Parameter `mode` should be one of 'train', 'eval'. Found `mode = 'trian'`. Did you mean 'train'?"
    )
    require_choice("mode", "eval", iter(["train", "eval"]))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("gradient_dispartiy", " Did you mean 'gradient_disparity'?"),
        ("cosin", " Did you mean 'cosine'?"),
        ("xyz", ""),
        (5, ""),
    ],
    ids=repr,
)
def test_the_nearest_word_is_named_or_none(found, said):
    assert near_match(found, ["gradient_disparity", "cosine", "sign"]) == said
