"""The import rules: what each package of heldin may import. Read from the source, without running it."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import heldin

ROOT = Path(heldin.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TOP = "heldin"  # the package's __init__

MAY_IMPORT = {  # package or module below heldin -> those it may import, besides itself
    "types": set(),
    "errors": set(),
    "rules": {"types", "errors"},
    "gradients": set(),
    "distributed": {"types", "errors", "gradients"},
    "probing": {"errors", "gradients", "distributed"},
    "needs": {"errors", "gradients", "distributed", "probing"},
    "signals": {"types", "errors", "gradients", "probing", "needs", "rules"},  # rules: each signal has a default
    "measuring": {"types", "errors", "probing", "needs", "signals", "distributed"},  # it decides nothing: no rules
    "snapshots": {"errors"},
    "plotting": {"types", "errors"},
    "loggers": {"errors"},
    "presets": {"errors", "rules"},
    "caveats": {"types", "errors", "rules"},
    "stopping": {
        "presets",
        "caveats",
        "types",
        "errors",
        "probing",
        "rules",
        "signals",
        "measuring",
        "distributed",
        "snapshots",
        "plotting",
        "loggers",
    },
    "theory": {"errors", "gradients", "probing"},
    "public": {"types", "errors", "probing", "rules", "signals", "measuring", "stopping", "theory"},
    TOP: set(),  # it loads `public` when a name is first used
}
MAY_NOT_IMPORT = {
    "integrations": {"lab", "cli"},
    "lab": {"integrations", "cli"},
    "cli": {"integrations"},
    "__main__": {"integrations", "lab"},
}
STANDARD_LIBRARY_ONLY = {"types", "errors", "rules", "presets", "caveats"}
BEHIND_AN_EXTRA = set(MAY_NOT_IMPORT)


def relative(path):
    return str(path.relative_to(ROOT))


def package_of(path):
    """The folder or file directly below src/heldin that contains `path`."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return TOP if name == "__init__" else name


def imports_of(source, *, package="heldin", inside_functions=True):
    """The dotted names that `source`, a file of `package`, imports when it runs; `from a import b` gives a.b."""
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


def packages_among(imports):
    known = {package_of(path) for path in FILES}
    below = {name.split(".")[1] for name in imports if name.startswith("heldin.")}
    top = {TOP} if below - known or "heldin" in imports else set()
    return (below & known) | top


def third_party_among(imports):
    return {name.split(".")[0] for name in imports} - set(sys.stdlib_module_names) - {"heldin"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("import heldin.lab.spec as spec, heldin.cli", {"lab", "cli"}, id="import"),
        pytest.param("from heldin.lab.spec import RunSpec", {"lab"}, id="from"),
        pytest.param("from heldin import lab", {"lab"}, id="from the top, a package"),
        pytest.param("from heldin import EarlyStopping", {TOP}, id="from the top, a name"),
        pytest.param("from .. import cli", {"cli"}, id="relative"),
        pytest.param("def f():\n    from heldin.lab import spec", {"lab"}, id="inside a function"),
        pytest.param("if TYPE_CHECKING:\n    import heldin.lab", set(), id="for types only"),
        pytest.param("if TYPE_CHECKING:\n    pass\nelse:\n    import heldin.lab", {"lab"}, id="not only for types"),
        pytest.param("import heldins.lab, math", set(), id="another package"),
    ],
)
def test_imports_are_found(source, expected):
    assert packages_among(imports_of(source, package="heldin.rules")) == expected


def test_the_rules_list_the_packages_that_exist():
    assert {package_of(path) for path in FILES} == set(MAY_IMPORT) | set(MAY_NOT_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_go_one_way(path):
    package = package_of(path)
    imported = packages_among(imports_of_file(path)) - {package}
    assert imported <= MAY_IMPORT.get(package, imported)
    assert not imported & MAY_NOT_IMPORT.get(package, set())


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) in STANDARD_LIBRARY_ONLY], ids=relative)
def test_what_needs_no_torch_imports_the_standard_library_only(path):
    assert third_party_among(imports_of_file(path)) == set()


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) not in BEHIND_AN_EXTRA], ids=relative)
def test_the_core_imports_torch_and_nothing_else_third_party(path):
    assert third_party_among(imports_of_file(path, inside_functions=False)) <= {"torch"}


def test_the_lab_imports_nothing_that_exists_on_one_operating_system_only():
    found = {name for path in FILES for name in imports_of_file(path, inside_functions=False)}
    assert not {name.split(".")[0] for name in found} & {"fcntl", "resource", "msvcrt", "termios", "pwd", "grp"}


SCRIPT = """
import json, sys
from pathlib import Path
def loaded():
    return {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
import torch
before = loaded()
import heldin
heldin.EarlyStopping
after = {name: origin for name, origin in loaded().items() if name not in before}
root, seen = str(Path(heldin.__file__).parent), set()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
data = torch.utils.data.TensorDataset(torch.randn(100, 4), torch.randint(3, (100,)))
loader = torch.utils.data.DataLoader(data, 10, shuffle=True)
stopper = heldin.EarlyStopping(model, torch.nn.CrossEntropyLoss())
stopper.step(loader)
sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_filename))
stopper.step(loader)
sys.setprofile(None)
files = sorted(name for name in seen if name.startswith(root))
print(json.dumps({"torch": before, "heldin": after, "files": files, "compiler": "torch._dynamo" in sys.modules}))
"""


@pytest.fixture(scope="module")
def loaded():
    """What a new process loads, by `import torch` and by the first use of heldin; the files of one step."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=600)
    return json.loads(ran.stdout)


def installed_among(modules):
    return {
        name.split(".")[0]
        for name, origin in modules.items()
        if {"site-packages", "dist-packages"} & {*Path(origin).parts}
    }


def test_importing_heldin_loads_no_third_party_package_besides_those_of_torch(loaded):
    assert "torch" in installed_among(loaded["torch"])
    assert installed_among(loaded["heldin"]) - installed_among(loaded["torch"]) <= {"heldin"}


def test_importing_heldin_does_not_load_what_needs_an_extra(loaded):
    packages = packages_among(loaded["heldin"])
    assert "stopping" in packages
    assert not packages & BEHIND_AN_EXTRA


def test_no_file_is_named_after_nothing_in_particular():
    assert [relative(path) for path in FILES if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


def test_one_step_passes_at_most_twelve_files(loaded):
    assert 0 < len(loaded["files"]) <= 12, loaded["files"]


def test_the_compiler_is_not_imported_for_a_model_that_is_not_compiled(loaded):
    assert not loaded["compiler"]
