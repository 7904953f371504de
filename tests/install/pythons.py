"""Installs heldin from this checkout with each Python that is found, and runs smoke.py: `make test-pythons`.

Each install goes into a new virtual environment, which is removed afterwards. Only the standard library is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")  # the classifiers of pyproject.toml
ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")


def find_python(version: str) -> str | None:
    """Return the path of this Python: on the PATH, or installed by pyenv or uv."""
    home = Path.home()
    folders = (Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions", home / ".local/share/uv/python")
    installed = [path for folder in folders for path in sorted(folder.glob(f"*{version}.*/bin/python{version}"))]
    for path in (shutil.which(f"python{version}"), *map(str, installed)):
        if path is not None and _version_of(path) == version:
            return path
    return None


def _version_of(python: str) -> str | None:
    """The version it reports. A shim of pyenv may report none."""
    program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run([python, "-c", program], capture_output=True, text=True)
    return ran.stdout.strip() or None


def install_and_run(python: str, folder: Path) -> None:
    """Install as the documentation says, and run the smoke test outside of the checkout."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    install = [own, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{ROOT}[lab]"]
    subprocess.run(install, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([own, "-W", "error", SMOKE], check=True, cwd=folder, env=environment)
    subprocess.run([folder / "bin" / "heldin", "--help"], check=True, env=environment, stdout=subprocess.DEVNULL)


def main(versions: list[str]) -> int:
    """Print one line per version, and return the number of those that failed."""
    failed = []
    for version in versions or VERSIONS:
        python = find_python(version)
        if python is None:
            print(f"Python {version}: not found, not tested", flush=True)
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="heldin-python") as folder:
            try:
                install_and_run(python, Path(folder))
            except subprocess.CalledProcessError as error:
                failed.append(version)
                print(f"Python {version}: FAILED ({python}): {error}", flush=True)
            else:
                print(
                    f"Python {version}: installed and ran in {time.monotonic() - started:.0f} s ({python})", flush=True
                )
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
