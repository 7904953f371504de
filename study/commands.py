"""The commands `choose`, `list`, `run`, `build` and `free-readings`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from heldin.cli.options import NUM_CORES, parse_seeds
from heldin.cli.output import note, resumable, show, show_rows
from heldin.errors import HeldinError
from heldin.lab.store import Store
from study.choice import is_decided
from study.running import CHOSEN, chosen_settings, recorded_trials, run_study, run_trials, study_runs, write_chosen
from study.settings import SLOTS

REFUSED = 2

StoreFolder = Annotated[Path, typer.Option("--store", metavar="DIR", help="The folder of the records.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", envvar="HELDIN_DATA", help="The datasets.", show_default=False),
]
Jobs = Annotated[int, typer.Option(help="How many runs at a time, each on one thread.")]
STORE = Path("heldin-study")

app = typer.Typer(
    help="What an early stop is worth on a single run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0, 2 if something is refused, 130 after Ctrl-C."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="python -m study")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except HeldinError as error:
        typer.echo(f"study: {error}", err=True)
        return REFUSED
    return 0


@app.command()
def choose(store: StoreFolder = STORE, data: DataFolder = None, jobs: Jobs = NUM_CORES) -> None:
    """Run the trials of all slots, and write the settings that the rule chooses. The same command resumes."""
    with resumable("python -m study choose"):
        run_trials(Store(store), jobs=jobs, data_root=data)
    undecided = write_chosen(Store(store))
    note(f"{len(chosen_settings())} of {len(SLOTS)} slots are filled, {undecided} undecided: {CHOSEN}")


@app.command("list")
def list_slots(store: StoreFolder = STORE) -> None:
    """Show the slots, their trials and what the rule decided, from the bundled records and those of the store."""
    from study.results import bundled_ids, bundled_trials

    records = Store(store)
    rows = []
    for slot in SLOTS:
        found = max(bundled_trials(slot), recorded_trials(slot, records), key=len)
        last = found[-1] if found else None
        rows.append(
            {
                "slot": slot.name,
                "trials": len(found),
                "rate": last and f"{last.spec.learning_rate:g}",
                "best": last and last.learning.best,
                "of majority": last and f"{last.learning.of_majority:.2f}",
                "rise": last and f"{last.learning.rise:.2f}",
                "jitter": last and f"{last.learning.jitter:.3f}",
                "result": "passes"
                if last and last.passes
                else ("empty: " if is_decided(found) else "so far: ") + ", ".join(last.failures)
                if last
                else "",
            }
        )
    show_rows(rows, rows[0])
    runs = study_runs(list(chosen_settings().values()))
    bundled = bundled_ids()
    done = sum(spec.id in bundled or records.folder(spec).done for spec in runs)
    note(
        f"\n{len(chosen_settings())} settings are chosen. {done} of their {len(runs)} runs are done, each fold of a "
        f"cross-validation counted as one; {len(bundled)} of them are bundled."
    )


@app.command()
def run(
    store: StoreFolder = STORE,
    data: DataFolder = None,
    jobs: Jobs = NUM_CORES,
    seeds: Annotated[str | None, typer.Option(help="Only these seeds: 0-2, or 0,1.", show_default=False)] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Also run what is among the bundled records.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Run what is missing of all settings, seeds and folds. After Ctrl-C, the same command resumes."""
    from study.results import bundled_ids

    chosen = None if seeds is None else parse_seeds(seeds)
    finished = set() if rerun else bundled_ids()
    with resumable("python -m study run"):
        num = run_study(Store(store), jobs=jobs, data_root=data, quiet=quiet, seeds=chosen, finished=finished)
    note(f"{num} runs are done." if num else "Nothing to run: all runs are recorded.")


@app.command()
def build(
    store: StoreFolder = STORE,
    keep: Annotated[bool, typer.Option("--keep", help="Add the store's finished runs to the bundled records.")] = False,
) -> None:
    """Build the page "What it is worth" from the bundled records."""
    from study.page import write_page
    from study.results import Results, keep_records

    if keep:
        num_trials, num_runs = keep_records(Store(store))
        note(f"{num_trials} trials and {num_runs} runs are bundled.")
    for path in write_page(Results.bundled()):
        note(str(path))


@app.command("free-readings")
def free_readings() -> None:
    """Compare readings from the gradients of training with those of extra passes, on the bundled runs."""
    from statistics import median

    from study.free_readings import compare, table
    from study.results import Results

    pairs = compare(run.record for run in Results.bundled().runs)
    correlations = sorted({pair.run_id: pair.correlation for pair in pairs}.values())
    show(table(pairs).markdown())
    quarter = len(correlations) // 4
    show(
        f"\nCorrelation of the two curves over epochs: median {median(correlations):.2f}, quartiles "
        f"{correlations[quarter]:.2f} and {correlations[-quarter - 1]:.2f}, lowest {correlations[0]:.2f}."
    )
