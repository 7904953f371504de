"""`heldin presets`: list the named ways of stopping."""

from __future__ import annotations

from heldin.cli.options import AsJson
from heldin.cli.output import show, show_json
from heldin.presets import PRESETS

EXAMPLE = "Examples:\n\nheldin presets\n\nheldin presets --json"


def command(as_json: AsJson = False) -> None:
    """List the presets: what each stands for, and what was measured with it."""
    if as_json:
        show_json([preset.as_dict() for preset in PRESETS.values()])
        return
    for preset in PRESETS.values():
        show(f"{preset.name}: {preset.summary}")
        for name, value in preset.definition.items():
            show(f"  {name}: {'none' if value is None else value}")
        show("  evidence (mean difference, settings in which it holds or a 95 % interval):")
        for each in preset.evidence:
            show(f"    {each.claim} {each.figure}: {each.verdict}.\n      From {each.source}")
    show('\nEarlyStopping(model, loss_fn, preset="paper") uses one; so does HeldInStopping of every framework.')
