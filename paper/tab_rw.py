"""Table RW (and RWmain): other signals as stopping criteria."""

from collections.abc import Iterator, Mapping

from heldin.lab.curves import Estimate, Group
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.reproducing import Built, Item, Runs
from heldin.rules import Level, NthRise
from paper.differing import difference, epochs_apart
from paper.making import PROTOCOLS, Row, built_of, group_of, stop_numbers, stop_table, together
from paper.settings import RELATED, Setting, seconds_of
from paper.words import WORDS

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


def _ways(setting: Setting, profile: str) -> dict[str, StoppingMethod]:
    ways = {name: StoppingMethod(Kind.SIGNAL, label, NthRise()) for name, label in SIGNALS.items()}
    ways["eb"] = StoppingMethod(Kind.SIGNAL, "evidence_based", Level(0.0))
    ways["kfold"] = StoppingMethod(Kind.KFOLD, rule=NthRise(), folds=setting.folds[profile])
    return ways | {"none": StoppingMethod(Kind.NEVER)}


def build(runs: Runs) -> Built:
    """The ways of each setting, how often each signal beats k-fold, and how far apart disparity and variance stop."""
    parts = []
    for setting in RELATED:
        group = group_of(runs, setting)
        if group is not None and group.full:
            ways = _ways(setting, runs.profile)
            parts += [Built(tables={setting.key: stop_table(setting, group, ways)}), _stopped(group, setting.key, ways)]
    found = together(*parts)
    return together(found, built_of(_won(found)))


def _stopped(group: Group, key: str, ways: Mapping[str, StoppingMethod]) -> Built:
    """What each way gives, what the best epochs give, who is ahead of whom, and how far apart stops are."""
    oracles = {"error": StoppingMethod(Kind.ORACLE_ERROR), "loss": StoppingMethod(Kind.ORACLE_LOSS)}
    parts = [stop_numbers(group, {f"{key}.{name}": way for name, way in ways.items()}, tuple(oracles))]
    for metric, oracle in oracles.items():
        least = stop_numbers(group, {f"{key}.min": oracle}, (metric,)).numbers
        parts.append(Built(numbers={name: found for name, found in least.items() if name.endswith(metric)}))
        for one, other in (("kfold", "gd"), ("kfold", "var"), ("none", "gd")):
            both = {WORDS[name]: ways[name] for name in (one, other)}
            parts.append(difference(group, f"{key}.{one}-{other}.{metric}", both, metric))
    signals = {WORDS[name]: ways[name] for name in ("gd", "var")}
    parts.append(epochs_apart(group, f"{key}.gd-var.epoch", signals, of=abs))
    return together(*parts, epochs_apart(group, f"{key}.min.error-loss.epoch", oracles))


def _won(built: Built) -> Iterator[Row]:
    """In how many of eight comparisons (four settings, error and loss) a signal is no worse than k-fold.

    And by how many of them disparity and variance are ahead of the best of the others.
    """
    for protocol in PROTOCOLS:
        won = {}
        for name in (*SIGNALS, "eb"):
            pairs = [
                [built.numbers.get(f"{setting.key}.{way}.{metric}", {}).get(protocol) for way in (name, "kfold")]
                for setting in RELATED
                for metric in ("error", "loss")
            ]
            if all(None not in pair for pair in pairs):
                won[name] = sum(ours.mean <= kfold.mean for ours, kfold in pairs)
        others = [num for name, num in won.items() if name not in ("gd", "var")]
        ahead = {f"{name}-others": won[name] - max(others) for name in ("gd", "var") if name in won and others}
        for name, num in (won | ahead).items():
            yield f"won.{name}", protocol, Estimate(float(num), None, 8), _never(built, name, protocol)


def _never(built: Built, name: str, protocol: str) -> str:
    """In how many settings a signal never says stop, and so wins and loses as no early stopping does."""
    told = [built.remarks.get(f"{setting.key}.{name}.epoch", {}).get(protocol) for setting in RELATED]
    num = told.count("never stopped")
    return f"never stopped in {num} of {len(RELATED)} settings" if num else ""


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
    found="Disparity and variance stop together, but do not beat k-fold throughout: on CIFAR-10 they stop late, for "
    "the reason given with tab:var, and their test loss there is higher. In (a) and (c), with clean labels, "
    "training to the end has the lowest test error of all that can be known; the EB-criterion never fires, so "
    "its numbers are those.",
    seconds=seconds_of,
)
