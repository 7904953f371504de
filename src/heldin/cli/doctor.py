"""`heldin doctor`: list what is installed and what is missing."""

from __future__ import annotations

import os
import platform
import sys

import heldin
from heldin.cli.options import DEFAULT_STORE, NUM_CORES, AsJson, DataFolder, StoreFolder
from heldin.cli.output import show, show_json

EXAMPLE = "Example:\n\nheldin doctor"

EXTRAS = {  # an extra -> its packages, with the versions that heldin is tested with (those of constraints.txt)
    "lab": {
        "joblib": "1.6.0",
        "matplotlib": "3.11.2",
        "mlxtend": "0.25.0",
        "pandas": "3.1.1",
        "plotly": "7.1.0",
        "pooch": "1.9.0",
        "rich": "15.0.0",
        "scikit-learn": "1.9.1",
        "typer": "0.29.0",
    },
    "cluster": {"ray": "2.60.0", "distributed": "2026.8.0"},
    "lightning": {"lightning": "2.6.6"},
    "huggingface": {"accelerate": "1.15.0", "peft": "0.21.2", "transformers": "5.22.2"},
    "skorch": {"skorch": "1.4.0"},
    "ignite": {"pytorch-ignite": "0.5.5"},
    "keras": {"keras": "3.15.1"},
    "dev": {"trl": "1.16.0"},
    "loggers": {"mlflow-skinny": "3.17.2", "tensorboard": "2.21.0", "wandb": "0.31.0"},
}
REQUIRED = ("lab",)  # what this command is part of; all other extras are for those who use these packages
TORCH = "2.13.0"
ON_PYTHON_3_10 = {
    "keras": "3.12.4",
    "matplotlib": "3.10.9",
    "mlxtend": "0.23.4",
    "pandas": "2.3.3",
    "scikit-learn": "1.7.2",
    "transformers": "5.20.2",
    "trl": None,
}
"""Where Python 3.10 is tested with another version, or with none."""


def command(store: StoreFolder = DEFAULT_STORE, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Show versions, frameworks, GPU, cores, data folder and store, what is missing, and how to get it."""
    from heldin.lab.data import DATASETS, data_root, describe

    tested = versions_tested_with(sys.version_info[:2])
    packages = {name: _version(name) for name in tested}
    extra_of = {name: extra for extra, listed in EXTRAS.items() for name in listed}
    missing: list[dict[str, str]] = []
    optional: list[dict[str, str]] = []
    for name, extra in extra_of.items():
        if packages.get(name) is None and name in tested:
            pip = (
                f'pip install ".[{extra}]", in a checkout'
                if extra != "dev"
                else f'pip install "{name}=={tested[name]}"'
            )
            line = {"what": name, "remedy": pip}
            (missing if extra in REQUIRED else optional).append(line)
    differing = [
        {"what": f"{name} {found}", "tested": tested[name], "remedy": f'pip install "{name}=={tested[name]}"'}
        for name, found in packages.items()
        if found is not None and found.partition("+")[0] != tested[name]
    ]
    infos = [describe(name, data) for name in DATASETS]
    not_present = [{"what": info.name, "remedy": info.remedy} for info in infos if info.remedy]
    existing = next(path for path in (store.absolute(), *store.absolute().parents) if path.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    if not writable:
        missing.append({"what": f"a writable store ({store} is not)", "remedy": "--store DIR"})
    system = f"{platform.system()} {platform.machine()}"
    present = [info.name for info in infos if info.state != "missing"]
    num_runs = len(list((store / "runs").glob("*/spec.json")))
    devices = find_devices()
    if as_json:
        show_json(
            {
                "heldin": heldin.__version__,
                "python": platform.python_version(),
                "system": system,
                "packages": packages,
                "tested_with": tested,
                "gpus": devices,
                "cores": NUM_CORES,
                "data": data_root(data),
                "datasets": present,
                "datasets_not_present": not_present,
                "store": store,
                "num_runs": num_runs,
                "writable": writable,
                "missing": missing,
                "not_installed": optional,
                "other_versions": differing,
            }
        )
        return
    show(f"heldin    {heldin.__version__}, Python {platform.python_version()}, {system}")
    show(f"cores     {NUM_CORES}")
    show(f"GPU       {', '.join(devices) or 'none found by torch; signals are measured where the model is'}")
    show(f"data      {data_root(data)}: {', '.join(present) or 'nothing'}")
    show(f"store     {store}: {num_runs} runs{'' if writable else ', not writable'}")
    show("\nPackages, installed / tested with:")
    for name, version in tested.items():
        show(f"  {name:<16}{packages[name] or '-'} / {version}")
    if differing:
        show("\nOther versions than those that heldin is tested with; they usually work:")
    for line in differing:
        show(f"  {line['what']}, tested with {line['tested']}: {line['remedy']}")
    if optional:
        show("\nNot installed, and needed only by those who use them:")
    for line in optional:
        show(f"  {line['what']}: {line['remedy']}")
    if not_present:
        show("\nDatasets that are not present. They are optional: each is used by `heldin run --dataset NAME` alone.")
    for line in not_present:
        show(f"  {line['what']}: {line['remedy']}")
    show("\nMissing:" if missing else "\nNothing that is needed is missing.")
    for line in missing:
        show(f"  {line['what']}: {line['remedy']}")


def versions_tested_with(python: tuple[int, int]) -> dict[str, str]:
    """Return the packages that heldin is tested with on this Python, with their versions."""
    newest = {"torch": TORCH, **{name: version for listed in EXTRAS.values() for name, version in listed.items()}}
    changed = ON_PYTHON_3_10 if python < (3, 11) else {}
    return {name: version for name in newest if (version := changed.get(name, newest[name])) is not None}


def find_devices() -> list[str]:
    """Return the GPUs that torch can use, by name."""
    import torch

    found = [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    return [*found, *(["mps"] if torch.backends.mps.is_available() else [])]


def _version(package: str) -> str | None:
    from importlib import metadata  # not above: `heldin --help` would wait for it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
