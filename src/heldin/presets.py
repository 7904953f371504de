"""Named, versioned ways of stopping: a signal, a rule, and how they are measured.

A preset does not change once it has been released; a better one gets a new name. To add one, extend `PresetName` and
`PRESETS`. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from heldin.errors import ArgumentError, require_choice
from heldin.rules import NthRise, Rule

if TYPE_CHECKING:
    from heldin.measuring import Probes, SignalChoice

PresetName = Literal["paper"]


@dataclass(frozen=True)
class Evidence:
    """What was measured with a preset.

    Attributes:
        claim: what was examined, as a statement.
        figure: what was found: the mean difference, and the number of settings in which the claim holds or a 95 %
            interval over settings.
        verdict: whether the claim holds.
        source: the records.
    """

    claim: str
    figure: str
    verdict: Literal["holds", "partly", "does not hold"]
    source: str


@dataclass(frozen=True)
class Preset:
    """A way of stopping.

    Attributes:
        name: its name.
        summary: what it is, in one sentence.
        signal: the label of the signal, with its options.
        rule: when to stop.
        batches: the number of batches to measure on.
        probes: which batches are used, as in `EarlyStopping`.
        start_after_fall: how far the training loss has to fall before the rule begins; None: it begins at once.
        evidence: what was measured with it, good and bad.
    """

    name: PresetName
    summary: str
    signal: str
    rule: Rule
    batches: int
    probes: Probes
    start_after_fall: float | None
    evidence: tuple[Evidence, ...]

    @property
    def definition(self) -> dict[str, object]:
        """The arguments of `EarlyStopping` that it stands for, as plain values; the rule as text."""
        return {
            "signal": self.signal,
            "rule": self.rule.describe(keywords=False),
            "batches": self.batches,
            "probes": self.probes,
            "start_after_fall": self.start_after_fall,
        }

    def as_dict(self) -> dict[str, object]:
        """Return the preset as plain JSON values."""
        evidence = [vars(each) for each in self.evidence]
        return {"name": self.name, "summary": self.summary, **self.definition, "evidence": evidence}


_STUDY = "the study, 135 runs of networks that learn, each by its own curve: study/README.md"
_FOLDS = "the study, 135 runs with folds of 45 settings, each by its own curve: study/README.md"
_PAPER_RECORDS = "the bundled records at laptop size: paper/README.md"

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "paper": Preset(
            "paper",
            "The 5th rise of gradient disparity on new batches each epoch, as in Forouzesh and Thiran (2021).",
            signal="gradient_disparity[rescale=std]",
            rule=NthRise(5),
            batches=5,
            probes="fresh",
            start_after_fall=None,
            evidence=(
                Evidence(
                    "A stop is better than training on (points of test error by which training on is worse).",
                    "+3.11 [+1.09, +5.25]",
                    "holds",
                    _STUDY,
                ),
                Evidence(
                    "With clean labels a stop is as accurate as training on.",
                    "2.6 points of test error and 0.07 of test loss above the best epoch, training on 2.2 points and "
                    "0.50",
                    "does not hold",
                    _STUDY,
                ),
                Evidence(
                    "Where some labels are wrong a stop is more accurate than training on.",
                    "6.5 points of test error and 0.18 of test loss above the best epoch, training on 13.7 points and "
                    "0.57",
                    "holds",
                    _STUDY,
                ),
                Evidence(
                    "5-fold cross-validation is not clearly better (test loss by which it is worse).",
                    "-0.0135 [-0.0494, +0.0188]",
                    "holds",
                    _FOLDS,
                ),
                Evidence(
                    "5-fold cross-validation is not clearly better (points of test error by which it is worse).",
                    "-1.92 [-3.25, -0.788]",
                    "does not hold",
                    _FOLDS,
                ),
                Evidence(
                    "Stopping by disparity gives a higher accuracy than k-fold cross-validation.",
                    "+1.36 points (paper there: +4.56 points), 2 of 5 (1 clearly, 1 clearly not); on the mean curve "
                    "+1.68 points, 3 of 5 (1 clearly)",
                    "partly",
                    _PAPER_RECORDS,
                ),
                Evidence(
                    "Stopping by disparity gives a lower test loss than k-fold cross-validation (below 0: lower).",
                    "+0.0489 (paper there: -0.0642), 2 of 5 (1 clearly, 1 clearly not); on the mean curve -0.0166, 4 "
                    "of 5 (1 clearly, 1 clearly not)",
                    "partly",
                    _PAPER_RECORDS,
                ),
                Evidence(
                    "The test error at the stop is lower than without early stopping.",
                    "+5.25 points, 2 of 4 (2 clearly, 2 clearly not); on the mean curve +2.86 points, 1 of 4 (1 "
                    "clearly, 2 clearly not)",
                    "partly",
                    _PAPER_RECORDS,
                ),
                Evidence(
                    "Disparity follows the test loss over epochs (correlation).",
                    "+0.612, 5 of 5 (5 clearly); on the mean curve +0.706, 5 of 5",
                    "holds",
                    _PAPER_RECORDS,
                ),
            ),
        ),
    }
)
"""All presets by their names."""


class Method(NamedTuple):
    """The arguments that a preset fixes. None: not given."""

    signal: SignalChoice | None = None
    rule: Rule | str | None = None
    patience: int | None = None
    batches: int | None = None
    probes: Probes | None = None
    start_after_fall: float | None = None

    def resolve(self, preset: str | None, **measured: Any) -> ResolvedMethod:
        """Return the arguments to use: those of the preset, or these and the defaults.

        A preset is refused together with arguments that it fixes. `measured` are further arguments that would change
        its values; None if they have their defaults.
        """
        if preset is None:
            return ResolvedMethod(
                "gradient_disparity" if self.signal is None else self.signal,
                self.rule,
                self.patience,
                5 if self.batches is None else self.batches,
                "fresh" if self.probes is None else self.probes,
                self.start_after_fall,
            )
        require_choice("preset", preset, PRESETS)
        chosen = PRESETS[preset]
        given = [name for name, value in {**self._asdict(), **measured}.items() if value is not None]
        if given:
            fixed = {name: repr(value) for name, value in chosen.definition.items() if value is not None}
            fixed["rule"] = chosen.rule.describe(keywords=False)  # without quotes
            stands_for = ", ".join(f"{name}={value}" for name, value in fixed.items())
            raise ArgumentError(
                f"A preset and the arguments that it fixes should not both be given. Found `preset = {preset!r}` and "
                f"{', '.join(f'`{name}`' for name in given)}. Leave {'them' if len(given) > 1 else 'it'} out, or write "
                f"what the preset stands for and change that: {stands_for}."
            )
        return ResolvedMethod(chosen.signal, chosen.rule, None, chosen.batches, chosen.probes, chosen.start_after_fall)


class ResolvedMethod(NamedTuple):
    """What to measure and when to stop."""

    signal: SignalChoice
    rule: Rule | str | None  # None: that of the first signal
    patience: int | None
    batches: int
    probes: Probes
    start_after_fall: float | None
