"""Draws the curves of the documentation and writes `examples.md`, from `docs/records`: `python docs/curves.py`.

`python docs/curves.py record NAME` makes a record: `signals` trains seed 0 of `examples/digits.py` and measures every
signal after each epoch; the name of a script in `examples` runs it. A test compares the drawings with what this program
draws from the records. `python examples/digits.py > docs/records/digits.txt` records the first example.
"""

from __future__ import annotations

import ast
import html
import json
import math
import runpy
import sys
from pathlib import Path
from statistics import fmean

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
RECORDS, IMAGES = DOCS / "records", DOCS / "images"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*_digits.py"))  # one per framework
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 230, 64, 64, 26, 34
TEXT, SIGNAL, ERROR, STOP = "#888888", "#1a8f84", "#d9534f", "#999999"  # readable on white and on black
LOG_RATIO = 20.0  # largest over smallest value, above which the axis is logarithmic


def record_signals() -> dict[str, object]:
    """Train seed 0 of the README's setting to the end; return the test errors and all signals after each epoch."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import heldin

    digits = runpy.run_path(str(EXAMPLES / "digits.py"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data, x_test, y_test = digits["noisy_digits"](0)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    held_out = DataLoader(TensorDataset(x_test, y_test), batch_size=32, shuffle=True)  # for train_val_disparity alone
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.05)
    names = sorted(heldin.signals.REGISTRY)
    stopper = heldin.EarlyStopping(model, loss_fn, signal=names, rule=heldin.NthRise(5), optimizer=optimizer)
    errors = []
    for _ in range(digits["EPOCHS"]):
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        stopper.step(loader, against=held_out)
        with torch.no_grad():
            errors.append((model(x_test).argmax(1) != y_test).float().mean().item())
    curves = {name: [reading.values[name] for reading in stopper.history] for name in names}
    stops = {
        name: heldin.replay(signal.rule, curves[name], direction=signal.direction).epoch
        for name, signal in sorted(heldin.signals.REGISTRY.items())
    }
    return {"test_error": rounded(errors), "stops": stops, "signals": {k: rounded(v) for k, v in curves.items()}}


def record_example(name: str) -> dict[str, object]:
    """Run a script of `examples`; return the test errors of each seed, with and without heldin, after each epoch."""
    runs = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")["runs"]
    errors, stopped = ([rounded(run) for run in each] for each in zip(*runs, strict=True))
    return {"errors": errors, "stopped": stopped}


def rounded(values: list[float | None]) -> list[float | None]:
    """Five significant digits; what is not finite is None."""
    return [None if value is None or not math.isfinite(value) else float(f"{value:.5g}") for value in values]


def gallery() -> str:
    """Return the page of the examples."""
    table = (RECORDS / "digits.txt").read_text()
    lines = [
        "# Examples",
        "",
        "All scripts are in the folder `examples`. The lines that heldin adds to a script are marked. Each script of this",
        "page, apart from [training code of many styles](#training-code-of-many-styles), trains on 700 handwritten digits",
        "(of scikit-learn, 8 x 8 pixels), half of them with a random label, and prints the test error at the stop, at the",
        "best epoch, which cannot be known without a test set, and at the last epoch. The setting was chosen by test",
        "curves alone, before any signal was measured in it, as one in which stopping matters. Epochs count",
        "from 0: a stop at epoch 20 comes after 21 epochs.",
        "",
        "## A plain loop",
        "",
        "`python examples/digits.py`, with five seeds, in a few minutes; the picture is seed 0:",
        "",
        *(f"    {line}".rstrip() for line in table.splitlines()),
        "",
        "![Test error above, gradient disparity below](images/digits.png)",
        "",
        "## A notebook",
        "",
        "`examples/quickstart.ipynb` goes through the first steps in five minutes.",
        "",
        "## In each framework",
        "",
        "Three seeds each: one run to the end, and one that heldin stops, which is the same up to there. The pictures are",
        "seed 0: the curve is the test error of the run to the end, the bar is where the other run stopped.",
    ]
    for name in SCRIPTS:
        record = json.loads((RECORDS / f"{name}.json").read_text())
        title = (ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or "").partition(":")[0]
        runs = list(zip(record["errors"], record["stopped"], strict=True))
        at_stop, best, last = (fmean(each) for each in zip(*((s[-1], min(e), e[-1]) for e, s in runs), strict=True))
        *others, after = (str(len(stopped)) for _, stopped in runs)
        lines += [
            "",
            f"### {title}",
            "",
            f"`python examples/{name}.py`: stopped after {', '.join(others)} and {after} of {len(runs[0][0])} epochs; "
            f"mean test error {at_stop:.1%} there, {best:.1%} at the best epochs, {last:.1%} at the last.",
            "",
            f"![The test error over {len(runs[0][0])} epochs, and the stop](images/examples/{name}.svg)",
        ]
    lines += ["", "## Training code of many styles", "", "Scripts in `examples/in_the_wild`:", ""]
    lines += ["| script | what it trains |", "|---|---|"]
    for path in sorted((EXAMPLES / "in_the_wild").glob("*.py")):
        summary = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        lines.append(f"| `{path.name}` | {' '.join(summary.split())} |")
    return "\n".join(lines) + "\n"


def drawings() -> dict[str, str]:
    """Return every drawing by its path in `docs/images`."""
    record = json.loads((RECORDS / "signals.json").read_text())
    found = {
        f"signals/{name}.svg": draw(record["test_error"], values, name.replace("_", " "), record["stops"][name])
        for name, values in record["signals"].items()
    }
    for name in SCRIPTS:
        record = json.loads((RECORDS / f"{name}.json").read_text())
        found[f"examples/{name}.svg"] = draw(record["errors"][0], None, "", len(record["stopped"][0]) - 1)
    return found


def draw(errors: list[float], values: list[float | None] | None, label: str, stop: int | None) -> str:
    """Return an SVG: the test error on the right axis, a signal on the left one, and the stop."""
    x = [LEFT + (WIDTH - LEFT - RIGHT) * epoch / (len(errors) - 1) for epoch in range(len(errors))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{TEXT}">',
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}V{TOP}" fill="none" stroke="{TEXT}"/>',
    ]
    last = len(errors) - 1
    for epoch in range(0, last + 1, 50 if last > 100 else 10):
        parts.append(text(x[epoch], HEIGHT - BOTTOM + 16, str(epoch), "middle"))
    parts.append(text(WIDTH / 2, HEIGHT - 4, "epoch", "middle"))
    if stop is not None:
        parts.append(
            f'<path d="M{x[stop]:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{STOP}" stroke-width="5" opacity="0.5"/>'
        )
        parts.append(text(x[stop] + 6, TOP + 12, f"stop at epoch {stop}", "start"))
    parts += curve(x, [100 * error for error in errors], ERROR, right=True)
    parts.append(text(WIDTH - RIGHT, 16, "test error (%)", "end", ERROR))
    if values is not None:
        parts += curve(x, values, SIGNAL, right=False)
        parts.append(text(LEFT, 16, label, "start", SIGNAL))
    return "\n".join([*parts, "</svg>", ""])


def curve(x: list[float], values: list[float | None], color: str, *, right: bool) -> list[str]:
    """Return a line and the labels of its axis: the smallest and the largest value, and one between them."""
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    logarithmic = not right and low > 0 and high / low > LOG_RATIO

    def height(value: float) -> float:
        if high == low:
            return (TOP + HEIGHT - BOTTOM) / 2
        share = math.log(value / low) / math.log(high / low) if logarithmic else (value - low) / (high - low)
        return HEIGHT - BOTTOM - 4 - share * (HEIGHT - TOP - BOTTOM - 8)

    between = math.sqrt(low * high) if logarithmic else (low + high) / 2
    at = WIDTH - RIGHT + 6 if right else LEFT - 6
    anchor = "start" if right else "end"
    labels = [
        text(at, height(value) + 4, f"{value:,.0f}" if right or value >= 100 else f"{value:.2g}", anchor, color)
        for value in ([low, between, high] if high > low else [low])
    ]
    pairs = [(a, height(value)) if value is not None else None for a, value in zip(x, values, strict=True)]
    path, pen = "", "M"
    for pair in pairs:
        path += "" if pair is None else f"{pen}{pair[0]:.1f} {pair[1]:.1f}"
        pen = "M" if pair is None else "L"
    return [*labels, f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>']


def text(x: float, y: float, content: str, anchor: str, color: str = TEXT) -> str:
    """Return a text of a drawing."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{html.escape(content)}</text>'


def main(arguments: list[str]) -> None:
    """Make a record, or draw all curves."""
    if arguments[:1] == ["record"]:
        for name in arguments[1:]:
            record = record_signals() if name == "signals" else record_example(name)
            RECORDS.mkdir(exist_ok=True)
            (RECORDS / f"{name}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
        return
    for name, drawing in drawings().items():
        (IMAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (IMAGES / name).write_text(drawing)
    (DOCS / "examples.md").write_text(gallery())


if __name__ == "__main__":
    main(sys.argv[1:])
