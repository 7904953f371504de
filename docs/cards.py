"""Write the pages of the signals from their docstrings: `python docs/cards.py`. A test checks that they are current."""

import importlib
from pathlib import Path

import heldin
from heldin.signals import REGISTRY
from heldin.signals.signal import Family

PAGES = Path(__file__).parent / "signals"
BY_HAND = {"gradient_disparity"}  # modules whose page contains more than the docstring


def main() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (PAGES / name).write_text(text)


def pages() -> dict[str, str]:
    """File name -> text, for every page that is written from docstrings."""
    modules: dict[str, list[type]] = {}
    for kind in REGISTRY.values():
        modules.setdefault(kind.__module__, []).append(kind)
    found = {"index.md": index()}
    for module, kinds in modules.items():
        name = module.rsplit(".", 1)[-1]
        if name not in BY_HAND:
            found[f"{slug(name)}.md"] = page(module, kinds)
    return found


def slug(module: str) -> str:
    """The file name of a module's page."""
    return module.replace("_", "-")


def page(module: str, kinds: list[type]) -> str:
    """The page of one module: its title and the docstring of each signal in it."""
    summary = (importlib.import_module(module).__doc__ or "").splitlines()[0]
    title, _, rest = summary.partition(" (")
    lines = [f"# {title}", "", rest.partition("): ")[2].capitalize(), ""]
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        rule = next(row["rule"] for row in heldin.list_signals() if row["name"] == kind.name)  # type: ignore[attr-defined]
        lines += [
            f"::: heldin.{kind.__name__}",
            "    options: { members: false, heading_level: 2 }",
            "",
            f"Name in results: `{kind.name}`. Default rule: `{rule}`. It {kind.direction.value} when the "  # type: ignore[attr-defined]
            "network begins to memorise.",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def index() -> str:
    """The table of all signals, by family."""
    lines = [
        "# All signals",
        "",
        "`heldin.list_signals()` prints this table. Cost is in passes over one batch, for 5 batches of 128 samples;",
        "what several signals share is computed once. Signals of one family measure nearly the same and are not",
        "independent evidence. `heldin signals NAME`, or `help(heldin.GradientDisparity)`,",
        "shows the docstring of a signal.",
        "",
    ]
    rows = list(heldin.list_signals())
    for family in Family:
        members = [row for row in rows if row["family"] == family.value]
        if members:
            lines += [f"## {family.value.capitalize()}", "", "| name | needs | cost | direction | rule | reference |"]
            lines += ["|---|---|---|---|---|---|"]
            lines += [
                f"| [`{row['name']}`]({slug(REGISTRY[row['name']].__module__.rsplit('.', 1)[-1])}.md) | "
                f"`{row['needs']}` | {row['cost']} | {row['direction']} | `{row['rule']}` | {row['reference']} |"
                for row in members
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
