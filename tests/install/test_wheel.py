"""The wheel and the constraints: what an installation gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.install.pythons import VERSIONS, find_python

ROOT = Path(__file__).parents[2]
CONSTRAINTS = [
    Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The archive of the sources and the wheel, as `make dist` builds them."""
    folder = tmp_path_factory.mktemp("dist")
    copy = tmp_path_factory.mktemp("checkout")
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in files.stdout.splitlines():
        if not name.startswith(("paper/", "study/", "tests/", "benchmarks/")) and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": ""})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def metadata(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_metadata_names_every_python_that_is_tested(metadata):
    classifiers = metadata.get_all("Classifier")
    found = [line.rpartition(" ")[2] for line in classifiers if re.search(r":: 3\.\d+$", line)]
    assert found == list(VERSIONS)
    assert metadata["Requires-Python"] == f">={VERSIONS[0]}"
    assert metadata.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/2107.06665"]


def test_the_description_has_no_link_that_a_package_index_cannot_follow(metadata):
    description = metadata.get_payload()
    assert "Early stopping with nothing held out" in description
    assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []


def test_the_description_shows_the_loop_of_the_readme(metadata):
    (diff,) = re.findall(r"```diff\n.*?```", metadata.get_payload(), re.DOTALL)
    assert diff in (ROOT / "README.md").read_text()


def test_the_wheel_has_the_library_and_the_archive_also_the_documentation(built):
    (wheel,), (archive,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert {"heldin/py.typed", "heldin/lab/page.html", "heldin/loggers.py"} <= names
    assert all(name.startswith("heldin/") for name in names)
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"docs/install.md", "examples/digits.py", "constraints.txt", "src/heldin/py.typed", "README.md"} <= names


@pytest.mark.parametrize("version", VERSIONS)
def test_each_package_has_at_most_one_version_per_python(version):
    environment = {"python_version": version, "python_full_version": f"{version}.0"}
    names = [pin.name.lower() for pin in CONSTRAINTS if pin.marker is None or pin.marker.evaluate(environment)]
    assert len(names) == len(set(names))
    assert {"torch", "numpy", "pandas", "matplotlib", "lightning", "keras"} <= set(names)


def test_this_python_is_found_and_another_one_is_not():
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = find_python(version)
    assert path is None or f"Python {version}." in subprocess.check_output([path, "--version"], text=True)
    assert find_python("3.99") is None


def test_one_page_says_how_to_install_and_nothing_says_that_heldin_is_on_a_package_index():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "paper").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (*pages, *sources)}
    assert [name for name, text in texts.items() if re.search(r'pip install ["\']?heldin(?!-\d)', text)] == []
    saying = [name for name in texts if name.endswith(".md") and "pip install -c constraints.txt" in texts[name]]
    assert saying == [str(Path("docs/install.md"))]
