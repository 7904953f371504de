"""The page "What it is worth", built from the bundled records. The same records give the same bytes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, quantiles

from heldin.lab.method_tables import pearson
from heldin.lab.spec import RunSpec
from heldin.lab.store import write_atomically
from heldin.lab.tables import Cell, Table
from study.candidates import CANDIDATES, FALL, NEVER, PAPER
from study.caveats import caveat_scores
from study.evaluation import (
    CLEARLY_WORSE,
    Difference,
    Summary,
    Target,
    Validation,
    by_setting,
    difference,
    neighbours,
    outcomes_of,
)
from study.results import HYPOTHESES, OF_HORIZON, Results
from study.settings import EARLY, FOLDS, LATE, VERY_EARLY

FOLDER = Path(__file__).parent
PAGE, DETAILS = "README.md", "candidates.md"
DOCUMENT, PICTURE = "../docs/worth.md", "../docs/images/worth.png"
UNITS = {Target.LOSS: "test loss", Target.ERROR: "points of test error"}
SHORT = {
    PAPER.name: "the paper's rule",
    **{each.name: f"rise beyond the noise, {each.curve}" for each in HYPOTHESES},
}
"""Short names of the methods of the first tables."""

OTHER_SEEDS = "best epoch of other seeds"
_ROLLED_BACK = "the paper's rule, back to the epoch before the rises"
CLEAN, WRONG = "clean", "some are wrong"
_GROUPS_OF_LABELS = {CLEAN: "With clean labels", WRONG: "Where some labels are wrong"}
_WITH_LABELS = {CLEAN: "with clean labels", WRONG: "where some are wrong"}
DEEP = ("alexnet", "vgg8", "resnet8")


def write_page(results: Results, folder: Path = FOLDER) -> list[Path]:
    """Write the page, the tables behind it and the picture. Return the files."""
    files = {PAGE: page(results), DETAILS: details(results), DOCUMENT: document(results)}
    (folder / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_atomically(folder / name, text)
    _draw(results, folder / PICTURE)
    return [folder / name for name in (*files, PICTURE)]


def main_methods(results: Results) -> list[str]:
    """Return the methods of the first table: the references, the paper's rule, the hypotheses and the default."""
    names = [
        *results.references,
        *SHORT,
        *(name for name in results.candidates if name.startswith(("always", "after "))),
    ]
    return list(dict.fromkeys([*names, results.default()]))


def page(results: Results) -> str:
    """Return the page."""
    parts = [
        "# What it is worth",
        in_short(results),
        _joined(by_labels(results), against_holdout(results)),
        _validation(results),
        against_validation(results).markdown(),
        "## The study",
        _introduction(results),
        f"![Regret against cost for each way of stopping]({PICTURE})",
        "## Where it stops",
        where_it_stops(results),
        stops_by_best(results).markdown(),
        "## Where it fails",
        _FAILURES,
        failures(results).markdown(),
        "## The default",
        _decision(results),
    ]
    for target in Target:
        parts += [f"## Regret in {UNITS[target]}", method_table(results, main_methods(results), target).markdown()]
    for heading, (name, group_of) in GROUPS.items():
        parts += [heading, *(by_group(results, target, name, group_of).markdown() for target in Target)]
    parts += ["## Which re-scaling suits which network", _RESCALINGS, correlations(results).markdown()]
    parts += ["## Chosen on other datasets", _LEFT_OUT]
    parts += [left_out(results, target).markdown() for target in Target]
    parts += ["## How sensitive the constants are", sensitivity(results).markdown()]
    parts += ["## How often caveats are right", _CAVEATS, caveats(results).markdown()]
    parts += [f"All {len(results.candidates)} candidates are in [{DETAILS}]({DETAILS})."]
    return "\n\n".join(parts) + "\n"


_FAILURES = (
    "The settings in which the paper's rule is worse than not stopping at all, by more than a point of test error or "
    "0.01 of test loss; those furthest beyond these limits first. Columns are regrets."
)
_LEFT_OUT = (
    "For each dataset, the candidate with the lowest mean regret on all other datasets, and its regret on this one. "
    "What is chosen on some data is only worth something if it is good on other data too. Fractions of the horizon are "
    "left out here: the horizon is three to five times the best epoch of a trial, so they know what no user knows."
)


_RESCALINGS = (
    "Pearson's correlation of disparity with the test loss over the epochs of a run, on the same batches every time: "
    "the mean over seeds, then the median over settings. The three columns are the losses divided by their standard "
    "deviation (std), by the same number without differentiating it (std_detached), and by that of all batches "
    "(pooled_std). No candidate depends on the network, and these groups were formed after the curves had been read: "
    "what the table shows is a hint."
)
_CAVEATS = (
    "A stop is bad if its test error is more than a point above that of the best epoch, or its test loss more than 5 % "
    "above the lowest. Of the stops with a caveat, how many are bad; of those without, how many; and of the bad stops, "
    "how many have it. A caveat is worth something if the first share is clearly larger than the second. Learning "
    "rates do not change here and predictions are not recorded, so two kinds of caveats cannot occur."
)


def document(results: Results) -> str:
    """Return the page of the documentation: the main results, and what they mean."""
    parts = [
        "# What it is worth",
        _wrapped(in_short(results)),
        _wrapped(_joined(by_labels(results), against_holdout(results))),
        "![Mean regret against cost, for the test loss and for the test error](images/worth.png)",
        _REGRET,
        _wrapped(_knows_horizon(results)),
        "## When it stops",
        _wrapped(where_it_stops(results)),
        stops_by_best(results).markdown(),
        "## Against validation data",
        _wrapped(_validation(results)),
        against_validation(results).markdown(),
        "## Against other ways without validation data",
        _OTHERS,
        against_others(results).markdown(),
        _KEPT if results.default() == PAPER.name else "",
        _wrapped(_better_in_one(results)),
        _wrapped(_hint(results)),
        _BEHIND,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


_REGRET = """\
*Regret* is the value at the stop minus the lowest of the same run; 0 is a perfect stop, which nobody can make without
the test data. Each point is a way of stopping; squares are references. *Rise beyond the noise* is
`RiseAbove(0.1, noise=3, ema=0.5)` on disparity of the same batches every time, from the epoch on at which the training
loss has fallen by a tenth; `std`, `std_detached` and `pooled_std` are [re-scalings of the losses](concepts.md). *Best
epoch of other seeds* stops a run where the other seeds of its setting are best on average, which nobody knows. Readings
between the batches of the first epochs count, so a best epoch may be 3.75."""
_OTHERS = """\
Mean regrets, and in brackets the 95 % interval of the difference from the default: below 0 the other way is better, and
an interval that contains 0 is not a clear difference. *Exchanged* is the regret if the stops of all runs are exchanged
at random: what a way of stopping knows of the run it stops is the difference from that."""
_KEPT = """\
No candidate meets the conditions that were written down for a new default, and what is best on all datasets but one is
not clearly better than the paper's rule on that one in both targets. So **the paper's rule stays the default**. A rise
beyond the noise follows the best epoch more closely, but its stops are not clearly better. Going back to the epoch
before the rises is clearly worse than the weights of the stop."""
_BEHIND = """\
Every setting is trained to a horizon of three to five times its best epoch, with up to three seeds, and all ways of
stopping are replayed on the same records. Settings, candidates and the rule for the default were written down before
the ways of stopping were compared. `study/README.md` has all tables, failures first; `python -m study build` builds it
and this page from the records in `study/results`, and `python -m study run` adds to them."""


def _others(results: Results) -> list[str]:
    """Return the candidates that are compared with the paper's rule: all that do not know the horizon."""
    return [name for name in results.candidates if name not in (PAPER.name, NEVER.name, *OF_HORIZON)]


def _knows_horizon(results: Results) -> str:
    """Return what candidates that know the horizon are, and why they are not counted."""
    points = " and ".join(
        f"*{name}* ({format_difference(results.compared(name, Target.LOSS))} of test loss and "
        f"{format_difference(results.compared(name, Target.ERROR))} points of test error, minus the paper's rule)"
        for name in OF_HORIZON
    )
    return (
        f"The point {points} was a candidate and should not have been: the horizon is three to five times the best "
        "epoch of a trial, so it stops near the best epoch, which no user can. It is shown as a reference and does not "
        f"count: of the {len(results.candidates)} candidates, {len(_others(results))} are compared with the paper's "
        "rule."
    )


def _better_in_one(results: Results) -> str:
    """Return the candidates that are clearly better than the paper's rule in one of the two targets."""
    sentences = []
    for target, other in ((Target.LOSS, Target.ERROR), (Target.ERROR, Target.LOSS)):
        compared = {name: results.compared(name, target) for name in _others(results)}
        better = {name: found for name, found in compared.items() if found is not None and found.high < 0.0}
        if not better:
            sentences.append(
                f"In {UNITS[target]} alone none of the {len(compared)} other candidates is clearly better."
            )
            continue
        best = min(better, key=lambda name: better[name].mean)
        sentences.append(
            f"In {UNITS[target]} alone {len(better)} of the {len(compared)} other candidates "
            f"{'is' if len(better) == 1 else 'are'} clearly better, {'most of all ' * (len(better) > 1)}`{best}` with "
            f"{format_difference(better[best])}; in {UNITS[other]} it differs by "
            f"{format_difference(results.compared(best, other))}."
        )
    return " ".join(sentences) + " With so many candidates some intervals exclude 0 by chance."


def _hint(results: Results) -> str:
    """Return what was found after the candidates had been compared."""
    later = outcomes_of(replace(PAPER, start=FALL), results.runs)
    loss, error = (difference(later, results.candidates[PAPER.name], target) for target in Target)
    return (
        f"A hint, found afterwards and so not among the candidates: with `start_after_fall={FALL:g}` the default "
        f"differs by {format_difference(error)} points of test error and {format_difference(loss)} of test loss. (The "
        "fall is that of the loss on the batches that are the same every time, not on the new ones of each reading.)"
    )


def against_others(results: Results) -> Table:
    """Return the main ways of stopping without validation data, compared with the default."""
    timers = [name for name in results.candidates if name.startswith("always")]
    rolled_back, fixed = replace(PAPER, roll_back=True).name, replace(PAPER, curve="std").name
    known = [name for name in results.candidates if name not in OF_HORIZON]
    lowest = [min(known, key=lambda name: results.summary(name, target).mean) for target in Target]
    names = [PAPER.name, NEVER.name, *timers, fixed, *(each.name for each in HYPOTHESES), rolled_back]
    names += lowest
    short = {**SHORT, rolled_back: _ROLLED_BACK, fixed: "the paper's rule, the same batches every time"}
    rows: list[dict[str, Cell]] = []
    for name in dict.fromkeys([*names, *OF_HORIZON, *(each for each in results.references if each == OTHER_SEEDS)]):
        row: dict[str, Cell] = {"way of stopping": short.get(name, name)}
        for target in Target:
            summary = results.summary(name, target)
            found = None if name == PAPER.name else results.compared(name, target)
            interval = "" if found is None else f" [{found.low:+.2g}, {found.high:+.2g}]"
            row[UNITS[target]] = f"{summary.mean:.3g}{interval}"
            row[f"exchanged, {UNITS[target]}"] = f"{summary.shuffled:.3g}"
        rows.append(row)
    return Table.from_rows(rows)


def in_short(results: Results) -> str:
    """Return what the study says of the default; the README of the project has the same sentences."""
    regret = {
        target: {name: results.summary(name, target).mean for name in (PAPER.name, NEVER.name)} for target in Target
    }
    kept = {target: 1.0 - each[PAPER.name] / each[NEVER.name] for target, each in regret.items()}
    error, loss = regret[Target.ERROR], regret[Target.LOSS]
    worse = {target: results.summary(PAPER.name, target).worse_than_never for target in Target}
    settings = len({run.setting for run in results.runs})
    datasets = len({run.record.spec.dataset for run in results.runs})
    return (
        f"On {settings} settings of {datasets} datasets in which networks learn and going on costs something, the "
        f"default (the paper's rule) stops {error[PAPER.name]:.1f} points of test error and {loss[PAPER.name]:.2f} of "
        f"test loss above the best epoch; training on ends {error[NEVER.name]:.1f} points and {loss[NEVER.name]:.2f} "
        f"above it. So a stop avoids {kept[Target.LOSS]:.0%} of the test loss and {kept[Target.ERROR]:.0%} of the test "
        f"error that training on adds, and costs {results.summary(PAPER.name, Target.LOSS).cost:.2f} trainings to the "
        f"end. In {worse[Target.ERROR]:.0%} of the settings it is more than a point worse than training on, in "
        f"{worse[Target.LOSS]:.0%} worse by more than 0.01 of loss."
    )


def by_labels(results: Results) -> str:
    """Return how good stops are with clean and with wrong labels; the README of the project has the same sentences."""
    sentences = []
    for group, settings in sorted(_grouped(results, labels_of).items()):
        mean = {
            (name, target): fmean(by_setting(results.outcomes[name], target)[setting] for setting in settings)
            for name in (PAPER.name, NEVER.name)
            for target in Target
        }
        sentences.append(
            f"{_GROUPS_OF_LABELS[group]} ({len(settings)} settings) a stop is {mean[PAPER.name, Target.ERROR]:.1f} "
            f"points of test error and {mean[PAPER.name, Target.LOSS]:.2f} of test loss above the best epoch, training "
            f"on {mean[NEVER.name, Target.ERROR]:.1f} points and {mean[NEVER.name, Target.LOSS]:.2f}."
        )
    return " ".join(sentences)


def _validation(results: Results) -> str:
    runs = sum(len(each) == FOLDS for each in results.folds.values())
    return (
        f"Ways of stopping with validation data, on the {runs} runs for which there are folds (below 0: they are "
        "better; 95 % intervals over settings; cost in trainings to the horizon, to which folds are trained). They are "
        "compared with the best epoch of the network trained on all the data, so the samples that a fold does not see "
        "count. Clean and wrong labels were told apart after the first comparison. The epoch is that of the lowest "
        "validation loss in the column of the loss, and that of the lowest validation error in the column of the "
        "error: these are two models. The last column is the error of the first one."
    )


def against_validation(results: Results) -> Table:
    """Return what methods with validation data give, and cost, compared with the default: in all, and by labels."""
    rows: list[dict[str, Cell]] = []
    for kind in (kind for kind in Validation if kind.value in results.references):
        cost = _rounded(results.summary(kind.value, Target.LOSS).cost)
        for labels, settings in {"all": None, **_grouped(results, labels_of)}.items():
            row: dict[str, Cell] = {"way of stopping": kind.value, "labels": labels}
            row["cost"] = cost if settings is None else None
            for target in Target:
                found = results.compared(kind.value, target, settings=settings)
                row[f"{UNITS[target]}, minus the default"] = format_difference(found)
            row["the same, chosen by validation loss"] = format_difference(results.chosen_by_loss(kind, settings))
            rows.append(row)
    return Table.from_rows(rows)


def against_holdout(results: Results) -> str:
    """Return how a hold-out compares with the default; the README of the project has the same sentence."""
    parts = []
    for labels, settings in sorted(_grouped(results, labels_of).items()):
        found = results.compared(Validation.HOLDOUT.value, Target.ERROR, settings=settings)
        if found is not None:
            parts.append(f"{found.mean:+.1f} points [{found.low:+.1f}, {found.high:+.1f}] {_WITH_LABELS[labels]}")
    return (
        "Instead of the default, a hold-out of a fifth, at its lowest validation error, changes the test error by "
        f"{' and by '.join(parts)}."
        if parts
        else ""
    )


def where_it_stops(results: Results) -> str:
    """Return how far the stops of the default are from the best epochs, in epochs."""
    stops = [each for each in results.candidates[PAPER.name] if each.target is Target.ERROR]
    epochs = sorted(each.epochs for each in stops)
    low, middle, high = quantiles(epochs, n=4)
    ratios = [each.epochs / max(each.run.best[Target.ERROR].epochs, 1.0) for each in stops]

    def share(holds: Callable[[float], bool]) -> str:
        return f"{sum(map(holds, ratios)) / len(ratios):.0%}"

    lost = sum(each.regret <= 1.0 for each in stops) / len(stops)
    return (
        f"In half of the {len(stops)} runs the default stops after {low:.0f} to {high:.0f} epochs (median "
        f"{middle:.0f}). On pure noise the 5th rise comes after about 10 epochs, so much of this is a timer. By test "
        f"error {share(lambda ratio: 0.75 <= ratio <= 1.25)} of the stops are within a quarter of the best epoch, "
        f"{share(lambda ratio: ratio < 0.75)} earlier and {share(lambda ratio: ratio > 1.25)} later; {lost:.0%} lose "
        "at most a point. The table has the median number of epochs at the stop, for runs whose best epoch by test "
        "loss lies in a range."
    )


def stops_by_best(results: Results) -> Table:
    """Return the median number of epochs at the stop, for ranges of the best epoch."""
    first, second, third = (end for _, end in (VERY_EARLY, EARLY, LATE))
    ranges = {
        f"up to {first}": (0, first),
        f"above {first}, up to {second}": (first, second),
        f"above {second}, up to {third}": (second, third),
        f"above {third}": (third, math.inf),
    }
    rows: list[dict[str, Cell]] = []
    for name, (low, high) in ranges.items():
        best = {run.record.id: epochs for run in results.runs if low < (epochs := run.best[Target.LOSS].epochs) <= high}
        if best:
            row: dict[str, Cell] = {"best epoch": name, "runs": len(best), "median best epoch": median(best.values())}
            for method, short in SHORT.items():
                row[short] = median(each.epochs for each in results.outcomes[method] if each.run.record.id in best)
            rows.append(row)
    return Table.from_rows(rows)


def _introduction(results: Results) -> str:
    datasets = {run.record.spec.dataset for run in results.runs}
    settings = {run.setting for run in results.runs}
    seeds = {run.record.spec.seed for run in results.runs}
    clean = {run.setting for run in results.runs if not run.record.spec.label_noise}
    with_folds = [setting for (setting, _), folds in results.folds.items() if len(folds) == FOLDS]
    return (
        f"{len(settings)} settings on {len(datasets)} datasets, {len(clean)} of them with clean labels; "
        f"{len(results.runs)} runs on all the data, with up to {len(seeds)} seeds; 5-fold cross-validation of "
        f"{len({*with_folds})} settings, {len(with_folds)} times in all. "
        "Every run trains to its horizon, three to five times its best epoch, and all methods are replayed on the "
        "same records. *Regret* is the test loss, or the test error in points, at the stop minus the lowest of the"
        " same run on all the data: 0 is a perfect stop, which nobody can make without the test data. The lowest value "
        "is taken over the ends of all epochs, the readings between batches in the first epochs and the untrained "
        "network. Averages are over the seeds of a setting, then over settings. "
        "How the settings were chosen, without any signal, is written in [choice.py](choice.py), the methods in "
        "[candidates.py](candidates.py), and the rule for the default in [results.py](results.py): all of it "
        "before stops were compared. Two changes came after the first test curves had been seen: twelve slots were "
        "added, and horizons were set to three, four and five times the best epoch in turn. Three slots of deep "
        "networks were added after all other test curves; by then one comparison of signals had been made, that of "
        "readings of training with those of extra passes."
    )


def _decision(results: Results) -> str:
    default = results.default()
    carried = results.choice_carries_over()
    fair = results.choice_carries_over(without=OF_HORIZON)
    lines = [
        f"The default is **{default}**"
        + (": no candidate meets the conditions, so the paper's rule stays." if default == PAPER.name else "."),
        _knows_horizon(results),
        f"{len({*results.eligible()} - {*OF_HORIZON})} of the {len(_others(results))} other candidates are better than "
        "the paper's rule in both targets and not clearly worse than cross-validation at a quarter of its cost. The "
        "methods chosen on other datasets, minus the paper's rule: "
        + "; ".join(f"{format_difference(found)} {UNITS[target]}" for target, found in carried.items())
        + " (95 % bootstrap intervals over settings). Without the fraction of the horizon: "
        + "; ".join(f"{format_difference(found)} {UNITS[target]}" for target, found in fair.items())
        + ".",
    ]
    return "\n\n".join(lines)


def format_difference(found: Difference | None) -> str:
    """Return a difference with its interval."""
    return "-" if found is None else f"{found.mean:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"


def method_table(results: Results, names: Sequence[str], target: Target) -> Table:
    """Return one row per method, the lowest mean regret first."""
    summaries = sorted((results.summary(name, target) for name in names), key=lambda summary: summary.mean)

    def cells(summary: Summary) -> dict[str, Cell]:
        against = None if summary.method == PAPER.name else results.compared(summary.method, target)
        return {
            "way of stopping": SHORT.get(summary.method, summary.method),
            "mean": _rounded(summary.mean),
            "90th percentile": _rounded(summary.p90),
            "worst": _rounded(summary.worst),
            "worse than not stopping": f"{summary.worse_than_never:.0%}",
            "rank correlation": _rounded(summary.correlation),
            "shuffled": _rounded(summary.shuffled),
            "cost": _rounded(summary.cost),
            "minus the paper's rule": format_difference(against),
        }

    return Table.from_rows(map(cells, summaries))


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")


def dataset_of(spec: RunSpec) -> str:
    """Return the dataset of a setting."""
    return spec.dataset


def labels_of(spec: RunSpec) -> str:
    """Return whether labels of a setting are wrong."""
    return WRONG if spec.label_noise else CLEAN


def network_of(spec: RunSpec) -> str:
    """Return the kind of network of a setting."""
    if spec.model in DEEP:
        return "deep (AlexNet, VGG-8)"
    kind = "linear layers" if spec.model.startswith(("mlp", "fully_connected")) else "a few convolutions"
    return kind + (", BatchNorm" if spec.model.endswith("_batchnorm") else "")


def by_group(results: Results, target: Target, name: str, group_of: Callable[[RunSpec], str]) -> Table:
    """Return the mean regret of the main methods in each group of settings."""
    names = [NEVER.name, *SHORT, *(kind.value for kind in Validation)]
    rows: list[dict[str, Cell]] = []
    tables = {method: by_setting(results.outcomes[method], target) for method in names if method in results.outcomes}
    for group, settings in _grouped(results, group_of).items():
        row: dict[str, Cell] = {name: group, "settings": len(settings)}
        for method, table in tables.items():
            values = [table[setting] for setting in settings if setting in table]
            row[SHORT.get(method, method)] = _rounded(fmean(values)) if values else None
        rows.append(row)
    return Table.from_rows(rows, title=f"Regret in {UNITS[target]}")


def correlations(results: Results) -> Table:
    """Return how disparity follows the test loss over the epochs of a run, by network and by re-scaling."""
    curves = [each.curve for each in HYPOTHESES]
    found: dict[str, dict[str, list[float]]] = {}  # by setting and curve: one number per run
    for run in results.runs:
        losses = [point.test_loss for point in run.epochs]
        for curve in curves:
            rho = pearson([point.value(curve) for point in run.epochs], losses)
            if not math.isnan(rho):
                found.setdefault(run.setting, {}).setdefault(curve, []).append(rho)
    rows: list[dict[str, Cell]] = []
    for group, settings in _grouped(results, network_of).items():
        row: dict[str, Cell] = {"network": group, "settings": len(settings)}
        for curve in curves:
            values = [fmean(found[setting][curve]) for setting in settings if curve in found.get(setting, {})]
            positive = sum(value > 0.0 for value in values)
            row[curve] = f"{median(values):+.2f} (above 0: {positive} of {len(values)})" if values else None
        rows.append(row)
    return Table.from_rows(rows, title="Correlation with the test loss")


GROUPS: dict[str, tuple[str, Callable[[RunSpec], str]]] = {
    "## Clean and wrong labels": ("labels", labels_of),
    "## By network": ("network", network_of),
    "## By dataset": ("dataset", dataset_of),
}
"""The groups of settings of the page: heading, name of the first column, and the group of a setting."""


def _grouped(results: Results, group_of: Callable[[RunSpec], str]) -> dict[str, list[str]]:
    """Return the settings of each group, by the group's name."""
    groups = {run.setting: group_of(run.record.spec) for run in results.runs}
    return {name: [each for each in groups if groups[each] == name] for name in sorted({*groups.values()})}


def failures(results: Results) -> Table:
    """Return the settings in which the paper's rule is clearly worse than not stopping."""
    rows = []
    for target in Target:
        margin = CLEARLY_WORSE[target.value]
        paper, never = (by_setting(results.outcomes[name], target) for name in (PAPER.name, NEVER.name))
        for setting in paper:
            if paper[setting] > never[setting] + margin:
                relative = (paper[setting] - never[setting]) / margin
                row: dict[str, Cell] = {
                    "setting": results.slots[setting],
                    "regret in": UNITS[target],
                    "the paper's rule": _rounded(paper[setting]),
                    NEVER.name: _rounded(never[setting]),
                }
                rows.append((relative, row))
    return Table.from_rows(row for _, row in sorted(rows, key=lambda each: -each[0]))


def left_out(results: Results, target: Target) -> Table:
    """Return the candidate chosen on all other datasets, for each dataset."""
    paper = by_setting(results.candidates[PAPER.name], target)
    datasets = {run.setting: run.record.spec.dataset for run in results.runs}
    rows: list[dict[str, Cell]] = [
        {
            "left out": found.dataset,
            "chosen on the others": found.method,
            f"regret in {UNITS[target]}": _rounded(found.regret),
            "the paper's rule": _rounded(
                fmean(value for setting, value in paper.items() if datasets[setting] == found.dataset)
            ),
        }
        for found in results.left_out(target, without=OF_HORIZON)
    ]
    return Table.from_rows(rows)


def sensitivity(results: Results) -> Table:
    """Return the mean regrets of the hypotheses, and with each of their constants changed alone."""
    rows: list[dict[str, Cell]] = [
        {
            "candidate": each.name,
            **{UNITS[target]: _rounded(results.summary(each.name, target).mean) for target in Target},
        }
        for center in HYPOTHESES
        for each in (center, *neighbours(center, CANDIDATES))
    ]
    return Table.from_rows(rows)


def caveats(results: Results) -> Table:
    """Return how often the caveats of the paper's rule and of the first hypothesis are right; those that occur."""
    rows: list[dict[str, Cell]] = []
    for method in (PAPER, HYPOTHESES[0]):
        for score in caveat_scores(method, results.runs):
            if score.kind is None or score.num_flagged:
                row: dict[str, Cell] = {
                    "way of stopping": SHORT[method.name],
                    "a stop is bad by": UNITS[score.target],
                    "caveat": "any" if score.kind is None else score.kind.value.replace("_", " "),
                    "stops": score.num_stops,
                    "with it": score.num_flagged,
                    "bad with it": _share(score.precision),
                    "bad without": _share(score.bad_otherwise),
                    "bad ones that have it": _share(score.recall),
                }
                rows.append(row)
    return Table.from_rows(rows)


def _share(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:.0%}"


_NAMES = (
    "A name is the curve and the rule. Curves of gradients are measured on the same batches every time, unless the "
    'name says "new batches"; std, std_detached and pooled_std are disparity with that re-scaling.'
)


def details(results: Results) -> str:
    """Return the page with all candidates."""
    parts = ["# All candidates", _NAMES]
    for target in Target:
        parts += [f"## Regret in {UNITS[target]}", method_table(results, list(results.outcomes), target).markdown()]
    return "\n\n".join(parts) + "\n"


def _draw(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    colors = plt.get_cmap("tab20").colors
    for axis, target in zip(axes, Target, strict=True):
        others = [results.summary(name, target) for name in results.candidates]
        axis.scatter(
            [each.cost for each in others], [each.mean for each in others], s=14, color="0.8", label="other candidates"
        )
        for number, name in enumerate(main_methods(results)):
            summary = results.summary(name, target)
            color, size = ("black", 110) if name == PAPER.name else (colors[number], 45)
            if math.isnan(summary.cost):
                axis.axhline(summary.mean, color="0.5", linestyle=":", linewidth=1, label=name)
            else:
                marker = "o" if name in results.candidates and name not in OF_HORIZON else "s"
                label = SHORT.get(name, name) + (" (the default)" if name == results.default() else "")
                label += " (no user knows it)" if name in OF_HORIZON else ""
                axis.scatter(
                    summary.cost,
                    summary.mean,
                    s=size,
                    marker="*" if name == PAPER.name else marker,
                    color=color,
                    label=label,
                    zorder=3 + (name == PAPER.name),
                )
        axis.set_xlabel("cost, in trainings to the horizon")
        axis.set_ylabel(f"mean regret in {UNITS[target]}")
        axis.set_xscale("log")
        axis.set_xticks([0.2, 0.5, 1.0, 2.0, 5.0], ["0.2", "0.5", "1", "2", "5"])
        axis.minorticks_off()
        axis.set_ylim(bottom=0.0)
    axes[1].legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.02, 1.0))
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)
