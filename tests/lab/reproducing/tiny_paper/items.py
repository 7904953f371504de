"""A paper of two items that trains in a second."""

from heldin.lab.curves import estimate
from heldin.lab.figures import CurvesDisplay
from heldin.lab.reproducing import ANY, Built, Item
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table

TINY = RunSpec(dataset="digits", num_samples=40, scale=0.02, batch_size=10, epochs=2, signals=("gradient_disparity",))
PROFILES = {"laptop": TINY, "paper": TINY.with_(epochs=4)}


def errors(runs):
    group = runs.group(PROFILES[runs.profile])
    if group is None:
        return Built()
    last = [100.0 * record.epochs[-1]["test_error"] for record in group.full]
    table = Table(("way", "error"), ({"way": "last", "error": estimate(last)},), "Errors <at> the end")
    curves = CurvesDisplay(group.full, "gradient_disparity")
    return Built({"errors": table}, {"curves": curves}, {"tiny.error": {ANY: estimate(last)}})


def specs(profile):
    return [PROFILES[profile].with_(seed=seed) for seed in (0, 1)]


ITEMS = (
    Item("tab:tiny", "Errors are high.", 1, specs, errors, differs="It is small.", seconds=lambda spec: 60.0),
    Item("fig:same", "The same runs, drawn.", 2, specs, errors, differs="It is small.", seconds=lambda spec: 60.0),
)


def said(key):
    return f"in words: {key}"
