"""The import law: rooms, and what each may import. Read from the source, so that nothing has to be run to break it."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import heldin

ROOT = Path(heldin.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FRONT = "heldin"  # the package's own __init__, which imports nearly everything

ONLY = {  # room -> the rooms it may import, itself aside
    "types": set(),
    "errors": set(),
    "rules": {"types", "errors"},
    "needs": {"types"},
    "gram": {"types", "errors"},
    "signals": {"types", "errors", "needs", "gram", "rules"},  # rules: each signal names its authors' own
    "probing": {"types", "errors", "needs"},
    "offering": {"errors"},
    "keeping": {"types", "errors"},
    "plotting": {"types", "errors"},
    "serving": {"types", "errors", "needs", "gram", "probing"},
    "measuring": {"errors", "probing", "signals", "serving"},
    "watching": {"types", "errors", "needs", "signals", "probing", "offering", "serving", "measuring"},  # no rules
}
NEVER = {  # room -> the rooms it may not import
    FRONT: {"lab", "integrations", "cli"},
    "stopping": {"lab", "integrations", "cli"},
    "theory": {"lab", "integrations", "cli"},
    "distributed": {"lab", "integrations", "cli"},
    "integrations": {"lab", "cli"},
    "lab": {"integrations", "cli"},
    "cli": {"integrations"},
    "__main__": {"integrations", "lab"},
}
STANDARD_LIBRARY_ONLY = {"types", "errors", "rules"}
NAMELESS = ("__init__", "__main__")
FREE_TO_DEPEND = {"lab", "integrations", "cli", "__main__"}  # each behind an extra


def of_file(path):
    return str(path.relative_to(ROOT))


def room_of(path):
    """The folder or file right below src/heldin that `path` is in."""
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return FRONT if room == "__init__" else room


def imports_of(source, *, package="heldin", inside_functions=True):
    """The dotted names `source`, a file of `package`, imports when it runs; `from a import b` gives a.b."""
    found = set()

    def visit(node):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
        elif inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(ast.parse(source))
    return found


def imports_of_file(path, **options):
    return imports_of(path.read_text(), package=".".join(["heldin", *path.relative_to(ROOT).parts[:-1]]), **options)


def rooms_among(imports):
    rooms = {room_of(path) for path in FILES} | set(ONLY) | set(NEVER)
    below = {name.split(".")[1] for name in imports if name.startswith("heldin.")}
    front = {FRONT} if below - rooms or "heldin" in imports else set()
    return (below & rooms) | front


def third_party_among(imports):
    return {name.split(".")[0] for name in imports} - set(sys.stdlib_module_names) - {"heldin"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("import heldin.lab.spec", {"lab"}, id="import"),
        pytest.param("import heldin.lab.spec as spec, heldin.cli", {"lab", "cli"}, id="import, several and renamed"),
        pytest.param("from heldin.lab.spec import RunSpec", {"lab"}, id="from"),
        pytest.param("from heldin import lab", {"lab"}, id="from the front, a room"),
        pytest.param("from heldin import EarlyStopping", {FRONT}, id="from the front, a name"),
        pytest.param("import heldin", {FRONT}, id="the front itself"),
        pytest.param("from ..lab import spec", {"lab"}, id="relative"),
        pytest.param("from .. import cli", {"cli"}, id="relative, a room"),
        pytest.param("from . import rule", {"rules"}, id="relative, its own room"),
        pytest.param("def f():\n    from heldin.lab import spec", {"lab"}, id="inside a function"),
        pytest.param("try:\n    import heldin.lab\nexcept ImportError:\n    pass", {"lab"}, id="inside a try"),
        pytest.param("if TYPE_CHECKING:\n    import heldin.lab", set(), id="for types only"),
        pytest.param("if typing.TYPE_CHECKING:\n    import heldin.lab", set(), id="for types only, dotted"),
        pytest.param("if TYPE_CHECKING:\n    pass\nelse:\n    import heldin.lab", {"lab"}, id="but for types"),
        pytest.param("'''import heldin.lab'''", set(), id="in a docstring"),
        pytest.param("import heldins.lab, math", set(), id="another package"),
    ],
)
def test_imports_are_found_wherever_they_run(source, expected):
    assert rooms_among(imports_of(source, package="heldin.rules")) == expected


def test_imports_inside_functions_can_be_left_out():
    source = (
        "import torch\ndef f():\n    import pandas\nclass C:\n    import numpy\n    def g(self):\n        import rich"
    )
    assert third_party_among(imports_of(source)) == {"torch", "pandas", "numpy", "rich"}
    assert third_party_among(imports_of(source, inside_functions=False)) == {"torch", "numpy"}


def test_every_room_has_a_law():
    assert {room_of(path) for path in FILES} <= set(ONLY) | set(NEVER), "a new room: say above what it may import"


@pytest.mark.parametrize("path", FILES, ids=of_file)
def test_imports_go_one_way(path):
    room = room_of(path)
    imported = rooms_among(imports_of_file(path)) - {room}
    assert imported <= ONLY.get(room, imported)
    assert not imported & NEVER.get(room, set())


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in STANDARD_LIBRARY_ONLY], ids=of_file)
def test_types_errors_and_rules_need_nothing_but_the_standard_library(path):
    assert third_party_among(imports_of_file(path)) == set()


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) not in FREE_TO_DEPEND], ids=of_file)
def test_the_core_is_imported_with_torch_and_nothing_else_third_party(path):
    assert third_party_among(imports_of_file(path, inside_functions=False)) <= {"torch"}


@pytest.fixture(scope="module")
def loaded():
    """What `import torch` loads, and what `import heldin` then loads on top: module -> file."""
    script = """
import json, sys
def loaded():
    return {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
import torch
before = loaded()
import heldin
after = {name: origin for name, origin in loaded().items() if name not in before}
print(json.dumps({"torch": before, "heldin": after}))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(ran.stdout)


def installed_among(modules):
    return {
        name.split(".")[0]
        for name, origin in modules.items()
        if {"site-packages", "dist-packages"} & {*Path(origin).parts}
    }


def test_importing_heldin_loads_no_package_that_torch_does_not(loaded):
    assert "torch" in installed_among(loaded["torch"])
    assert installed_among(loaded["heldin"]) - installed_among(loaded["torch"]) <= {"heldin"}


def test_importing_heldin_does_not_load_what_needs_an_extra(loaded):
    rooms = rooms_among(loaded["heldin"])
    assert "stopping" in rooms
    assert not rooms & FREE_TO_DEPEND


@pytest.mark.parametrize("path", FILES, ids=of_file)
def test_no_file_is_longer_than_500_lines(path):
    assert len(path.read_text().splitlines()) <= 500


def test_no_file_is_a_drawer_for_everything():
    assert [of_file(path) for path in FILES if path.stem in {"utils", "util", "helpers", "misc"}] == []


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in NAMELESS], ids=of_file)
def test_every_file_has_a_test_file_of_its_name(path, pytestconfig):
    mirrored = path.relative_to(ROOT).with_name(f"test_{path.stem.removeprefix('_')}.py")
    assert (pytestconfig.rootpath / "tests" / mirrored).is_file()
