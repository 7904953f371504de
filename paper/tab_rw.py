"""Table RW (and RWmain): other signals as stopping criteria."""

from heldin.lab.curves import Estimate, estimate
from heldin.lab.reproducing import Built, Item, Runs
from heldin.lab.ways import Kind, Way
from heldin.rules import Level, NthRise
from paper.making import MEAN_CURVE, PER_RUN, Numbers, answers, difference, group_of, outcome, stop_numbers, stop_table
from paper.settings import RELATED, Setting, seconds_of

SIGNALS = {
    "gd": "gradient_disparity",
    "var": "gradient_variance",
    "gsnr": "gsnr",
    "inner": "inner_product",
    "sign": "sign",
    "cos": "cosine",
    "omega": "class_alignment",
    "ov": "optimization_variance",
}


def _ways(setting: Setting, profile: str) -> dict[str, Way]:
    ways = {name: Way(Kind.SIGNAL, label, NthRise()) for name, label in SIGNALS.items()}
    ways["eb"] = Way(Kind.SIGNAL, "evidence_based", Level(0.0))
    ways["kfold"] = Way(Kind.KFOLD, rule=NthRise(), folds=setting.folds[profile])
    return ways | {"none": Way(Kind.NEVER)}


def build(runs: Runs) -> Built:
    """The ways of each setting, how often each signal beats k-fold, and how far apart disparity and variance stop."""
    tables, numbers = {}, {}
    for setting in RELATED:
        group = group_of(runs, setting)
        if group is None or not group.full:
            continue
        ways = _ways(setting, runs.profile)
        tables[setting.key] = stop_table(setting, group, ways)
        numbers.update(stop_numbers(group, setting.key, ways, ("error", "loss")))
        for metric, kind in (("error", Kind.ORACLE_ERROR), ("loss", Kind.ORACLE_LOSS)):
            numbers.update(_only(stop_numbers(group, setting.key, {"min": Way(kind)}, (metric,)), metric))
            for name in ("gd", "var"):
                ahead = difference(group, ways["kfold"], ways[name], metric)
                numbers.update({f"{setting.key}.kfold-{name}.{metric}": ahead} if ahead else {})
        apart = _between(group, ways["gd"], ways["var"], of=abs)
        numbers.update({f"{setting.key}.gd-var.epoch": apart} if apart else {})
        later = _between(group, Way(Kind.ORACLE_ERROR), Way(Kind.ORACLE_LOSS))
        numbers[f"{setting.key}.min.error-loss.epoch"] = later
    return Built(tables=tables, numbers=numbers | _won(numbers))


def _only(numbers: dict, metric: str) -> dict:
    return {key: value for key, value in numbers.items() if key.endswith(f".{metric}")}


def _between(group, one: Way, other: Way, of=float) -> dict:
    """How many epochs later one way stops than another one does."""
    if not (answers(group, one) and answers(group, other)):
        return {}
    found = {}
    for protocol in (PER_RUN, MEAN_CURVE):
        mine, theirs = (outcome(group, way, protocol).choices for way in (one, other))
        found[protocol] = estimate([float(of(a.epoch - b.epoch)) for a, b in zip(mine, theirs, strict=True)])
    return found


def _won(numbers: Numbers) -> Numbers:
    """In how many of eight comparisons (four settings, error and loss) a signal is no worse than k-fold.

    And by how many of them disparity and variance are ahead of the best of the others.
    """
    found: Numbers = {}
    for protocol in (PER_RUN, MEAN_CURVE):
        won = {}
        for name in (*SIGNALS, "eb"):
            pairs = [
                [numbers.get(f"{setting.key}.{way}.{metric}", {}).get(protocol) for way in (name, "kfold")]
                for setting in RELATED
                for metric in ("error", "loss")
            ]
            if all(None not in pair for pair in pairs):
                won[name] = sum(ours.mean <= kfold.mean for ours, kfold in pairs)
        others = [num for name, num in won.items() if name not in ("gd", "var")]
        ahead = {f"{name}-others": won[name] - max(others) for name in ("gd", "var") if name in won and others}
        for name, num in (won | ahead).items():
            found.setdefault(f"won.{name}", {})[protocol] = Estimate(float(num), None, 8)
    return found


ITEM = Item(
    label="tab:RW",
    also=("tab:RWmain",),
    claim="Of nine signals only gradient disparity and the variance of gradients beat k-fold cross-validation in all "
    "four settings, and these two stop at the same epoch.",
    stage=1,
    specs=lambda profile: [spec for setting in RELATED for spec in setting.specs(profile)],
    build=build,
    differs="12.8 k samples become 2,000 of MNIST and 1,280 of CIFAR-10, widths 1/4 and 1/16. Setting (b) is the noisy "
    "MNIST setting of the comparison with k-fold, with its ten folds. MNIST is trained for 50 epochs, whatever the "
    "training loss.",
    seconds=seconds_of,
)
