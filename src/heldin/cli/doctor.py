"""`heldin doctor`: list what is installed and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import heldin
from heldin.cli.options import DEFAULT_STORE, NUM_CORES, AsJson, DataFolder, StoreFolder
from heldin.cli.output import show, show_json

EXAMPLE = "Example:\n\nheldin doctor"

EXTRAS = {  # an extra -> its packages
    "lab": ("joblib", "matplotlib", "mlxtend", "pandas", "plotly", "pooch", "rich", "scikit-learn", "typer"),
    "cluster": ("ray", "distributed"),
}


def command(store: StoreFolder = DEFAULT_STORE, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Show versions, cores, the data folder and the store, what is missing, and how to get it."""
    from heldin.lab.data import DATASETS, data_root, describe

    packages = {name: _version(name) for name in ("torch", *EXTRAS["lab"], *EXTRAS["cluster"])}
    missing = [
        {"what": name, "remedy": f'pip install ".[{extra}]", in a checkout'}
        for extra, listed in EXTRAS.items()
        for name in listed
        if packages[name] is None
    ]
    infos = [describe(name, data) for name in DATASETS]
    missing += [{"what": f"dataset {info.name}", "remedy": info.remedy} for info in infos if info.remedy]
    existing = next(path for path in (store.absolute(), *store.absolute().parents) if path.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    if not writable:
        missing.append({"what": f"a writable store ({store} is not)", "remedy": "--store DIR"})
    system = f"{platform.system()} {platform.machine()}"
    present = [info.name for info in infos if info.state != "missing"]
    num_runs = len(list((store / "runs").glob("*/spec.json")))
    if as_json:
        show_json(
            {
                "heldin": heldin.__version__,
                "python": platform.python_version(),
                "system": system,
                "packages": packages,
                "cores": NUM_CORES,
                "data": data_root(data),
                "datasets": present,
                "store": store,
                "num_runs": num_runs,
                "writable": writable,
                "missing": missing,
            }
        )
        return
    show(f"heldin    {heldin.__version__}, Python {platform.python_version()}, {system}")
    show(f"packages  {', '.join(f'{name} {version}' for name, version in packages.items() if version)}")
    show(f"cores     {NUM_CORES}")
    show(f"data      {data_root(data)}: {', '.join(present) or 'nothing'}")
    show(f"store     {store}: {num_runs} runs{'' if writable else ', not writable'}")
    show("\nMissing:" if missing else "\nNothing is missing.")
    for line in missing:
        show(f"  {line['what']}: {line['remedy']}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
