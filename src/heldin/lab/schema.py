"""What the files of a run contain: the same checks for writing and for reading.

`epochs.jsonl` has line k for epoch k, with the same keys in every line and values in their range. Losses, norms and
signals may be NaN or infinite, because training can diverge; errors cannot. A signal is None where it was not measured.
All functions raise an `ArgumentError` that says what was expected and what was found; the caller knows file and line.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from heldin.errors import ArgumentError, short_repr
from heldin.lab.spec import RunSpec, spec_from

VERSION = 1
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these
FINGERPRINT = re.compile(r"\d+\+\d+-[0-9a-f]{16}")
UNITS = ("batch_gradient", "distance", "optimizer_step", "batch_evaluation")
MAX_INTEGER = 2**53  # larger ones are not exact as a float

JsonObject: TypeAlias = dict[str, Any]  # one line of a record, or one checkpoint: the keys depend on the spec


class Range(NamedTuple):
    """The values that a metric can have."""

    low: float
    high: float
    nan: bool  # whether it may also be NaN

    def __str__(self) -> str:
        bounds = "a number" if self.low == -math.inf else "a number of at least 0"
        return "a number from 0 to 1" if self.high == 1.0 else bounds


RANGES = {
    "loss": Range(-math.inf, math.inf, nan=True),  # a user's loss may be negative
    "error": Range(0.0, 1.0, nan=False),
    "top5": Range(0.0, 1.0, nan=False),
    "auc": Range(0.0, 1.0, nan=True),  # NaN if one of the two classes is missing
}
NORM = Range(0.0, math.inf, nan=True)
SIGNAL = Range(-math.inf, math.inf, nan=True)
COUNT = Range(0.0, 1e12, nan=False)
SECONDS = Range(0.0, 1e12, nan=False)
SUMMARY = {"loss": RANGES["loss"], "error": RANGES["error"], "entropy": SIGNAL, "changed": COUNT}
READING = {  # a detailed reading, beside its Gram matrices
    "epochs": COUNT,
    "test_loss": RANGES["loss"],
    "test_error": RANGES["error"],
    **SUMMARY,
    "losses": RANGES["loss"],
    "stds": NORM,
    "pooled_std": NORM,
    "moved": NORM,
}
LISTS = ("losses", "stds")  # one value for each batch


class EpochSchema:
    """The lines of `epochs.jsonl` of one run."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.signals = dict.fromkeys(spec.signals).keys()
        parts = ["train", *["test"] * (spec.num_test != 0), *["val"] * (spec.fold is not None)]
        self.layouts = [  # top-5 error from 6 classes on, AUC for 2 classes
            {f"{part}_{name}": RANGES[name] for part in parts for name in names} | {"parameter_norm": NORM}
            for names in (("loss", "error"), ("loss", "error", "top5"), ("loss", "error", "auc"))
        ]
        more = ("after_epoch", "readings") if spec.detailed_readings else ()
        self.keys = [{"epoch", "signals", *more, *layout} for layout in self.layouts]

    def check_all(self, lines: Sequence[object], *, done: bool) -> None:
        """Check the whole record of a run."""
        first = lines[0] if lines else None
        for epoch, line in enumerate(lines):
            try:
                self.check(line, epoch, like=first)
                if epoch and self.is_last(lines[epoch - 1]):
                    raise ArgumentError(f"the run should end at epoch {epoch - 1}, its horizon. Found another epoch")
            except ArgumentError as error:
                raise LineError(epoch + 1, str(error)) from error
        if done and not (lines and self.is_last(lines[-1])):
            until = "" if self.spec.until_loss is None else f" or a training loss below {self.spec.until_loss:g}"
            raise ArgumentError(
                f"a run that is done should have {self.spec.epochs} epochs{until}. Found {len(lines)} epochs"
            )

    def check(self, line: object, epoch: int, *, like: object = None) -> None:
        """Check the line of an epoch; `like` is the first line of the run, whose keys it should have."""
        content = require_object(line)
        keys = content.keys()
        number = next((number for number, known in enumerate(self.keys) if keys == known), None)
        if number is None:
            raise ArgumentError(_wrong_keys(keys, self.keys[0]))
        if isinstance(like, dict) and keys != like.keys():
            raise ArgumentError(_wrong_keys(keys, like.keys()))
        if type(content["epoch"]) is not int or content["epoch"] != epoch:
            raise ArgumentError(f"`epoch` should be {epoch}. Found {short_repr(content['epoch'])}")
        for name, bounds in self.layouts[number].items():
            value = content[name]
            if value.__class__ is not float or not bounds[0] <= value <= bounds[1]:  # fast for what is usual
                _require_number(name, value, bounds)
        signals = content["signals"]
        if type(signals) is not dict or signals.keys() != self.signals:
            keys = require_object(signals, "`signals`").keys()
            raise ArgumentError(f"in `signals`, {_wrong_keys(keys, self.signals)}")
        for name, value in signals.items():
            if value is not None and value.__class__ is not float:
                _require_number(name, value, SIGNAL)
        if self.spec.detailed_readings:
            _check_reading("after_epoch", content["after_epoch"], SUMMARY)
            for reading in _require_list("readings", content["readings"]):
                rest = dict(require_object(reading, "a reading"))
                for name, products in require_object(rest.pop("grams", None), "`grams`").items():
                    for product in _require_list(name, [] if products is None else products):
                        _require_number(name, product, SIGNAL)
                _check_reading("readings", rest, READING)

    def is_last(self, line: Any) -> bool:
        """Whether this line reaches the horizon."""
        until = self.spec.until_loss
        return bool(line["epoch"] + 1 >= self.spec.epochs or (until is not None and line["train_loss"] < until))


class LineError(ArgumentError):
    """A line of a file is wrong."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def check_timing(line: object) -> None:
    """Check a line of `timings.jsonl`: the start of a process, or the seconds of an epoch."""
    content = require_object(line)
    if "begun" in content:
        begun = require_object(content["begun"], "`begun`")
        if "time" in begun:
            _require_number("time", begun["time"], SECONDS)
        _require_count("at_epoch", content.get("at_epoch"))
        return
    _require_count("epoch", content.get("epoch"))
    for name, value in require_object(content.get("seconds"), "`seconds`").items():
        _require_number(name, value, SECONDS)
    check_units(content.get("unit_seconds"))


def check_units(units: object) -> None:
    """Check the seconds of each operation."""
    found = require_object(units, "`unit_seconds`")
    if found.keys() != {*UNITS}:
        raise ArgumentError(f"in `unit_seconds`, {_wrong_keys(found.keys(), UNITS)}")
    for name, value in found.items():
        _require_number(name, value, SECONDS)


def spec_of(content: object) -> RunSpec:
    """The spec in `spec.json`."""
    found = _require_version(content, ("id", "spec"))
    try:
        spec = spec_from(require_object(found["spec"], "`spec`"))
    except (TypeError, OverflowError) as error:
        raise ArgumentError(f"`spec` should have values of the right type. {error}") from error
    if found["id"] != spec.id:
        raise ArgumentError(f"`id` should be {spec.id}, the hash of the spec. Found {short_repr(found['id'])}")
    return spec


def epochs_of(content: object) -> int:
    """The number of epochs in `done.json`."""
    found: int = _require_version(content, ("epochs",))["epochs"]
    _require_count("epochs", found)
    return found


class DataFacts(NamedTuple):
    """What a run records about its data."""

    fingerprint: str | None = None
    constant_error: float | None = None  # the test error of always predicting the most frequent class of the test set


def data_facts(content: object) -> DataFacts:
    """What is in `data.json`; records of earlier versions have no `constant_error`."""
    found = _require_version(content, ("fingerprint",), optional=("constant_error",))
    return DataFacts(require_fingerprint(found["fingerprint"]), require_constant_error(found.get("constant_error")))


def require_constant_error(found: Any) -> float | None:
    """The test error of a constant prediction, if it is one or None."""
    if found is not None:
        _require_number("constant_error", found, RANGES["error"])
    return found  # type: ignore[no-any-return]


def require_fingerprint(found: object) -> str:
    """The fingerprint of a dataset, if it is one."""
    if not isinstance(found, str) or not FINGERPRINT.fullmatch(found):
        raise ArgumentError(f"`fingerprint` should be such as 4000+1000-0123456789abcdef. Found {short_repr(found)}")
    return found


def is_newer(content: object) -> bool:
    """Whether a newer version of heldin wrote this file."""
    version = content.get("version") if isinstance(content, dict) else None
    return type(version) is int and version > VERSION


def parse_json(text: bytes) -> Any:
    """The value in a text; numbers that are not finite are restored from their names."""
    try:
        return json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ArgumentError("JSON should not be nested this deeply") from error
    except UnicodeDecodeError as error:
        found = "UTF-16" if text[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "another encoding"
        raise ArgumentError(f"it should be text in the encoding UTF-8. Found {found}") from error
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"it should be JSON. {error}") from error


def encode_json(value: Any) -> Any:
    """Plain JSON values: numbers that are not finite become their names."""
    if isinstance(value, Mapping):
        return {key: encode_json(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def require_object(found: object, name: str = "it") -> JsonObject:
    """A dict, if it is one."""
    if not isinstance(found, dict):
        raise ArgumentError(f"{name} should be a JSON object. Found {short_repr(found)}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ArgumentError("each key should be given once")
    for name, value in pairs:
        if value.__class__ is str:
            found[name] = NOT_FINITE.get(value, value)
        elif value.__class__ is list:
            found[name] = [NOT_FINITE.get(each, each) if each.__class__ is str else each for each in value]
    return found


def _refuse_constant(name: str) -> None:
    raise ArgumentError(f'numbers that are not finite should be written as text, such as "nan". Found {name}')


def _require_version(content: object, keys: Sequence[str], optional: Sequence[str] = ()) -> JsonObject:
    found = require_object(content)
    if found.keys() - {*optional} != {"version", *keys}:
        raise ArgumentError(_wrong_keys(found.keys(), ("version", *keys)))
    if type(found["version"]) is not int or found["version"] != VERSION:
        raise ArgumentError(f"`version` should be {VERSION}. Found {short_repr(found['version'])}")
    return found


def _require_count(name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise ArgumentError(f"`{name}` should be an integer of at least 0. Found {short_repr(value)}")


def _require_number(name: str, value: Any, bounds: Range) -> None:
    low, high, nan = bounds
    kind = value.__class__
    if (kind is float and (low <= value <= high or (nan and value != value))) or (
        kind is int and low <= value <= min(high, MAX_INTEGER) and value >= -MAX_INTEGER
    ):
        return
    raise ArgumentError(f"`{name}` should be {bounds}. Found {short_repr(value)}")


def _check_reading(name: str, found: object, ranges: Mapping[str, Range]) -> None:
    content = require_object(found, f"`{name}`")
    if content.keys() != ranges.keys():
        raise ArgumentError(f"in `{name}`, {_wrong_keys(content.keys(), ranges.keys())}")
    for key, bounds in ranges.items():
        value = content[key]
        if key != "changed" or value is not None:  # the first reading has none before it
            for each in _require_list(key, value) if key in LISTS else [value]:
                _require_number(key, each, bounds)


def _require_list(name: str, found: object) -> list[Any]:
    if not isinstance(found, list):
        raise ArgumentError(f"`{name}` should be a list. Found {short_repr(found)}")
    return found


def _wrong_keys(found: Collection[object], expected: Collection[object]) -> str:
    lacking = [key for key in expected if key not in found]
    more = [key for key in found if key not in expected]
    parts = [
        f"{what} {', '.join(map(short_repr, sorted(map(str, keys))[:3]))}"
        for what, keys in (("without", lacking), ("with", more))
        if keys
    ]
    return f"the keys should be those of the run. Found them {' and '.join(parts)}"
