"""Writes the pages of the signals: `python docs/cards.py`. A test compares the files with what this program writes."""

from pathlib import Path

import heldin
from heldin.signals import REGISTRY
from heldin.signals.signal import Family

FOLDER = Path(__file__).parent / "signals"

PAGES = {  # file -> title, introduction, names of the signals
    "gradient-variance.md": (
        "Gradient variance",
        "How much the gradients of different batches vary.",
        ["gradient_variance"],
    ),
    "noise-scale.md": (
        "Gradient noise scale",
        "The noise of the gradient relative to its size, as a batch size.",
        ["noise_scale"],
    ),
    "coherence.md": (
        "Coherence and diversity",
        "How much the gradients of single samples add up, or cancel.",
        ["coherence", "diversity"],
    ),
    "evidence.md": (
        "Evidence-based criterion",
        "Whether the gradient differs from noise, coordinate by coordinate.",
        ["evidence_based"],
    ),
    "gradient-snr.md": (
        "Gradient signal-to-noise ratio",
        "The squared mean of per-sample gradients relative to their variance, coordinate by coordinate.",
        ["gsnr"],
    ),
    "alignment.md": (
        "Alignment of batch gradients",
        "Whether the gradients of different batches point in the same direction.",
        ["cosine", "inner_product", "sign"],
    ),
    "gradient-confusion.md": (
        "Gradient confusion",
        "The largest disagreement between the gradients of two batches.",
        ["gradient_confusion"],
    ),
    "class-alignment.md": (
        "Alignment within a class",
        "How much the gradients of samples of one class agree.",
        ["class_alignment"],
    ),
    "stiffness.md": (
        "Stiffness within a class",
        "The mean cosine between the gradients of samples of one class.",
        ["stiffness"],
    ),
    "optimization-variance.md": (
        "Optimization variance",
        "How much the outputs differ after single optimizer steps on different batches.",
        ["optimization_variance"],
    ),
    "label-wave.md": (
        "Label Wave",
        "How many predictions changed since the last measurement.",
        ["label_wave"],
    ),
    "susceptibility.md": (
        "Susceptibility to noisy labels",
        "How fast the network learns random labels.",
        ["susceptibility"],
    ),
    "prediction-variance.md": (
        "Prediction variance",
        "How much the outputs vary over the last measurements.",
        ["prediction_variance"],
    ),
    "gradient-weight-alignment.md": (
        "Gradient-weight alignment",
        "Whether the negative gradients of single samples point in the direction of the weights.",
        ["gwa"],
    ),
}
WRITTEN_BY_HAND = {"gradient_disparity": "gradient-disparity.md", "train_val_disparity": "gradient-disparity.md"}
PAGE_OF = {name: file for file, (_, _, names) in PAGES.items() for name in names} | WRITTEN_BY_HAND


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    return {"index.md": index(), **{file: page(*content) for file, content in PAGES.items()}}


def page(title: str, introduction: str, names: list[str]) -> str:
    """Return a page: the docstring of each signal, and its direction, rule and need."""
    rows = {row["name"]: row for row in heldin.list_signals()}
    lines = [f"# {title}", "", introduction, ""]
    for name in names:
        signal = REGISTRY[name]
        lines += [
            f"::: heldin.{signal.__name__}",
            "    options: { members: false, heading_level: 2 }",
            "",
            f"Its name in results is `{name}`. It {rows[name]['direction']} when the network begins to memorise.",
            f"Its default rule is `{rows[name]['rule']}`; it needs `{rows[name]['needs']}`.",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def index() -> str:
    """Return the table of all signals, by family."""
    lines = [
        "# All signals",
        "",
        "`heldin.list_signals()` prints this table. `help(heldin.GradientDisparity)`, or `heldin signals NAME` in a",
        "terminal, shows the documentation of one signal. Signals of one family measure nearly the same: they are not",
        "independent evidence.",
        "",
        "*Cost* is that of one measurement on 5 batches of 128 samples: the number of backward passes (each with its",
        "forward pass), optimizer steps and further forward passes, each over one batch. Per-sample gradients",
        "(`SampleGradients`, `ClassGradients`) count as the gradients of their batch, although they take longer.",
        "Gradients and outputs that several signals need are computed once.",
        "",
    ]
    rows = list(heldin.list_signals())
    for family in Family:
        members = [row for row in rows if row["family"] == family.value]
        if members:
            lines += [f"## {family.value.capitalize()}", "", "| name | needs | cost | direction | rule | reference |"]
            lines += ["|---|---|---|---|---|---|"]
            lines += [
                f"| [`{row['name']}`]({PAGE_OF[row['name']]}) | `{row['needs']}` | {row['cost']} | "
                f"{row['direction']} | `{row['rule']}` | {row['reference']} |"
                for row in members
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    for file, text in pages().items():
        (FOLDER / file).write_text(text)
