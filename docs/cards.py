"""Writes the pages of the signals: `python docs/cards.py`. A test compares the files with what this program writes.

The text of a card is the docstring of the signal; its formula, set as mathematics, is here. In `gradient-disparity.md`,
which is written by hand, the program replaces what is between the two comments of a card.
"""

import inspect
import re
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

NOT_RESCALED = "The losses are not re-scaled."
OVER_SAMPLES = "over the gradients $g_1, \\dots, g_m$ of the samples of a batch; then the mean over batches."
FORMULAS = {
    "gradient_disparity": r"""$$\mathcal{D} = \frac{1}{s (s - 1)} \sum_{i \neq j} \| g_i - g_j \|, \qquad
g_j = \nabla_w \frac{1}{m} \sum_{k = 1}^{m} \frac{\ell_k}{\operatorname{std}(\ell)}$$

where $\ell_1, \dots, \ell_m$ are the losses of the samples of batch $j$ (section 4 of the paper).""",
    "train_val_disparity": r"""$$\mathcal{D} = \frac{1}{s v} \sum_{i = 1}^{s} \sum_{j = 1}^{v} \| g_i - h_j \|$$

where $g_1, \dots, g_s$ are the gradients of training batches and $h_1, \dots, h_v$ those of validation batches, re-scaled
as for gradient disparity (section 4 of the paper).""",
    "gradient_variance": r"""$$\operatorname{Var} = \frac{1}{s - 1} \sum_{j = 1}^{s} \| g_j - \bar{g} \|^2
= \frac{1}{2 s (s - 1)} \sum_{i \neq j} \| g_i - g_j \|^2$$

with the gradients of gradient disparity and their mean $\bar{g}$ (section 6 of the paper).""",
    "noise_scale": r"""$$\frac{m \operatorname{Var}}{|G|^2}, \qquad
|G|^2 = \frac{1}{s (s - 1)} \sum_{i \neq j} \langle g_i, g_j \rangle$$

where $\operatorname{Var}$ is the variance of the gradients of $s$ batches of $m$ samples, summed over coordinates. Both
estimates are unbiased. """
    + NOT_RESCALED,
    "inner_product": r"""$$\frac{2}{s (s - 1)} \sum_{i < j} \langle g_i, g_j \rangle$$

It is an unbiased estimate of the squared norm of the full gradient (section 6 of the paper). """
    + NOT_RESCALED,
    "sign": r"""$$\frac{2}{s (s - 1)} \sum_{i < j} \operatorname{sign} \langle g_i, g_j \rangle, \qquad
\operatorname{sign}(0) = 0$$

(section 6 of the paper). """
    + NOT_RESCALED,
    "cosine": r"""$$\frac{2}{s (s - 1)} \sum_{i < j} \frac{\langle g_i, g_j \rangle}{\| g_i \| \| g_j \|}$$

A pair with a zero gradient counts as 0 (section 6 of the paper). """
    + NOT_RESCALED,
    "gradient_confusion": r"""$$- \min_{i < j} \cos(g_i, g_j) \qquad \text{or} \qquad - \min_{i < j} \langle g_i, g_j \rangle$$

It is negative if no two batches are in conflict. """
    + NOT_RESCALED,
    "coherence": r"$$\frac{\| \sum_i g_i \|^2}{\sum_i \| g_i \|^2}$$" + "\n\n" + OVER_SAMPLES,
    "diversity": r"$$\frac{\sum_i \| g_i \|^2}{\| \sum_i g_i \|^2}$$" + "\n\n" + OVER_SAMPLES,
    "evidence_based": r"""$$1 - \frac{n}{d} \sum_{k = 1}^{d} \frac{\bar{g}_k^2}{\operatorname{var}_k}$$

where $\bar{g}_k$ and $\operatorname{var}_k$ are mean and variance (with $n - 1$) of coordinate $k$ of the gradients of
the $n$ samples of a batch; then the mean over batches. Coordinates in which all gradients are equal (dead units, biases
under an absolute loss) do not count. No epsilon is added to a variance.""",
    "gsnr": r"""$$\frac{1}{d} \sum_{k = 1}^{d} \frac{\bar{g}_k^2}{\operatorname{var}_k}$$

where $\bar{g}_k$ and $\operatorname{var}_k$ are mean and variance (with $n$) of coordinate $k$ of the gradients of the
$n$ samples of a batch; then the mean over batches. Coordinates in which all gradients are equal do not count.""",
    "class_alignment": r"""$$\Omega_c = \frac{1}{\nu_c^2} \cdot \frac{1}{n (n - 1)} \sum_{i \neq j} \langle g_i, g_j \rangle$$

over the gradients of the $n$ samples of class $c$, with mean norm $\nu_c$ (0 if $\nu_c = 0$); then the mean over classes
of at least 2 samples. Long gradients have more weight than in the mean cosine (`stiffness`).""",
    "stiffness": r"""$$\frac{1}{n (n - 1)} \sum_{i \neq j} \frac{\langle g_i, g_j \rangle}{\| g_i \| \| g_j \|}$$

over the gradients of the $n$ samples of a class; then the mean over classes. Zero gradients do not count, nor do classes
with fewer than 2 non-zero gradients.""",
    "optimization_variance": r"""$$\operatorname{OV}(x) = \frac{\frac{1}{s} \sum_b \| f_b(x) - \bar{f}(x) \|^2}
{\frac{1}{s} \sum_b \| f_b(x) \|^2}$$

where $f_b(x)$ are the logits of $x$ after one step of the optimizer on batch $b$, from the present weights, and
$\bar{f}(x)$ is their mean over the batches. The signal is the mean over the inputs $x$; inputs whose logits are all zero
do not count.""",
    "label_wave": r"""$$\operatorname{PC}_t = \left| \{ i : \operatorname{argmax} f_t(x_i) \neq \operatorname{argmax} f_{t - 1}(x_i) \} \right|$$

The rule follows the mean over 3 readings, and stops when it has had no new minimum for 5 readings: five readings after
the first minimum. The model then has the weights of the stop. `keep="before_rise"` and `restore()` give those of the
minimum, `keep="lowest"` those of the lowest single reading. Labels are not used.""",
    "prediction_variance": r"""$$\operatorname{VAR}_t = \frac{1}{n} \sum_{i = 1}^{n} \frac{1}{W} \sum_{w = t - W + 1}^{t}
\| f_w(x_i) - \bar{f}(x_i) \|^2$$

where $\bar{f}(x_i)$ is the mean of the outputs of the last $W$ readings. It has no value before $W$ readings.""",
    "susceptibility": r"""$$\zeta(t) = \frac{1}{t} \sum_{\tau \le t} \left( L_{\text{before}}(\tau) - L_{\text{after}}(\tau) \right)$$

where $L$ is the loss of a batch of training inputs with uniformly random labels, before and after one step of the
optimizer on it.""",
    "gwa": r"""$$\frac{\operatorname{mean}(\gamma)}{\operatorname{kurt}(\gamma) + \beta}, \qquad
\gamma_i = - \frac{\langle \delta_i z_i^T, W \rangle}{\| \delta_i \| \| z_i \| \| W \|}, \qquad
\delta_i = \operatorname{softmax}(f(x_i)) - \operatorname{onehot}(y_i)$$

where $z_i$ is the input of the last linear layer, $W$ its weights, $f(x_i)$ the logits and $\operatorname{kurt}$ the
biased excess kurtosis. If the denominator is below 0.05, or all $\gamma$ are equal, the value is
$\operatorname{mean}(\gamma)$, with a warning.""",
}

WHEN = """## Which signal when

| you have | signal | why |
|---|---|---|
| a loss of single samples, and no other wish | [`gradient_disparity`](gradient-disparity.md) | the default, and the signal that the paper and the lab have tried most |
| one noisy run | the same, with `probes="fixed"` or `Smoothed` | fresh batches add noise of their own: [when it misleads](../when-it-misleads.md) |
| batches so large that passes are expensive | the same, with `probes="training"` | takes the gradients that training computes: no additional pass |
| a loss of whole batches (contrastive, dice) | `GradientDisparity(rescale="mean")`, [`cosine`](alignment.md) | need no losses of single samples |
| wrong labels, classification, and time for a forward pass over the data | [`label_wave`](label-wave.md) | needs no gradient; made for label noise |
| no time for backward passes, cross entropy | [`gwa`](gradient-weight-alignment.md) | forward passes only |
| regression, or an image to reconstruct | [`gradient_disparity`](gradient-disparity.md), [`prediction_variance`](prediction-variance.md) | do not need classes |
| a wish for a rule without patience | [`evidence_based`](evidence.md) | stops above 0 |
| a comparison of methods | `signal="all"` | gradients that several signals need are computed once |

This table says what each signal needs and what it was made for. It does not say which one stops best: that differs
between settings, and rules chosen on some datasets often do not carry over to others.
"""


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    written = {file: with_cards((FOLDER / file).read_text()) for file in sorted({*WRITTEN_BY_HAND.values()})}
    return {"index.md": index(), **{file: page(*content) for file, content in PAGES.items()}, **written}


def page(title: str, introduction: str, names: list[str]) -> str:
    """Return a page: the card of each signal."""
    return "\n\n".join([f"# {title}", introduction, *map(card, names)]) + "\n"


def with_cards(text: str) -> str:
    """Return a page that is written by hand with its cards up to date."""
    return re.sub(
        r"<!-- card: (\w+) -->\n.*?<!-- end of card -->",
        lambda found: f"<!-- card: {found[1]} -->\n{card(found[1])}\n<!-- end of card -->",
        text,
        flags=re.DOTALL,
    )


def card(name: str) -> str:
    """Return what the docstring of a signal says, as sections with headings, with its formula and its curve."""
    row = next(row for row in heldin.list_signals() if row["name"] == name)
    summary, sections = parse(inspect.getdoc(REGISTRY[name]) or "")
    found = [
        f"## {REGISTRY[name].__name__}",
        summary,
        f"Its name in results is `{name}`. It {row['direction']} when the network begins to memorise. Its default rule is "
        f"`{row['rule']}`; it needs `{row['needs']}`.",
        f"![{name} and test error over 255 epochs](../images/signals/{name}.svg)",
        "One run in the setting of [the first example](../examples.md): 700 digits, half of them with a random label. The "
        "bar is the epoch at which the default rule stops this run.",
        "### Formula",
        FORMULAS[name],
        "### Cost",
        f"{upper(sections['Cost'])} Shapes: {sections['Shapes']}",
        "### Misleads when",
        upper(sections["Misleads when"]),
    ]
    if "Args" in sections:
        found += ["### Arguments", arguments(sections["Args"])]
    found += ["### Example", f"```pycon\n{sections['Examples']}\n```", "### Reference", sections["Reference"]]
    return "\n\n".join(found)


def parse(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraphs of a docstring, and the text of each section by its title."""
    parts = re.split(r"^([A-Z][\w ]*?)(?: \(.*\))?:\n", docstring, flags=re.MULTILINE)
    kept = {"Args", "Examples"}  # their line breaks matter
    sections = {
        title: inspect.cleandoc(text) if title in kept else " ".join(text.split()).replace("<", "&lt;")
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return " ".join(parts[0].split()), sections


def upper(text: str) -> str:
    """Return a sentence that starts with a capital letter; single letters are symbols."""
    return text if text[1] == " " else text[0].upper() + text[1:]


def arguments(text: str) -> str:
    """Return the arguments as a list, and their choices, which start with a quoted name, as lists inside it."""
    lines = []
    for line in text.splitlines():
        if found := re.match(r"(\w+): (.*)", line):
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif line.strip().startswith('`"'):
            lines.append(f"    - {line.strip()}")
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)


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
    lines += [*WHEN.splitlines(), ""]
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
