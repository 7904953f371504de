"""`heldin doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import heldin
from heldin.cli.options import DEFAULT_STORE, NUM_CORES, AsJson, DataFolder, StoreFolder
from heldin.cli.output import show, show_json

EXAMPLE = "Example:\n\nheldin doctor"

EXTRAS = {  # an extra -> what it brings
    "lab": ("joblib", "matplotlib", "mlxtend", "pandas", "plotly", "pooch", "rich", "scikit-learn", "typer"),
    "cluster": ("ray", "distributed"),
}


def command(store: StoreFolder = DEFAULT_STORE, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Look at versions, cores, the data folder and the store; say what is missing and how to get it."""
    found = _found(store, data)
    if as_json:
        show_json(found)
        return
    show(f"heldin    {found['heldin']}, Python {found['python']}, {found['system']}")
    show(f"packages  {', '.join(f'{name} {version}' for name, version in found['packages'].items() if version)}")
    show(f"cores     {found['cores']}")
    show(f"data      {found['data']}: {', '.join(found['datasets']) or 'nothing'}")
    show(f"store     {found['store']}: {found['num_runs']} runs{'' if found['writable'] else '; cannot be written'}")
    show("\nMissing:" if found["missing"] else "\nNothing is missing.")
    for line in found["missing"]:
        show(f"  {line['what']}: {line['remedy']}")


def _found(store: Path, data: Path | None) -> dict[str, Any]:
    from heldin.lab.data import data_root, describe, names

    packages = {name: _version(name) for name in ("torch", *EXTRAS["lab"], *EXTRAS["cluster"])}
    missing = [
        {"what": name, "remedy": f'pip install "heldin[{extra}]"'}
        for extra, brought in EXTRAS.items()
        for name in brought
        if packages[name] is None
    ]
    datasets = [describe(name, data) for name in names()]
    missing += [{"what": f"dataset {info.name}", "remedy": info.remedy} for info in datasets if info.remedy]
    existing = next(path for path in (store.absolute(), *store.absolute().parents) if path.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    if not writable:
        missing.append({"what": f"a store that can be written, unlike {store}", "remedy": "--store DIR"})
    return {
        "heldin": heldin.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": packages,
        "cores": NUM_CORES,
        "data": data_root(data),
        "datasets": [info.name for info in datasets if info.state != "missing"],
        "store": store,
        "num_runs": len(list((store / "runs").glob("*/spec.json"))),
        "writable": writable,
        "missing": missing,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
