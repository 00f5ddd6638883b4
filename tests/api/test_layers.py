"""Imports go one way, and names are those of the field."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from support.source_trees import statements

ROOT = Path(outlast.__file__).parent

LAYERS = (
    {"errors", "version"},
    {"codec", "explain"},
    {"settings"},
    {"telemetry"},
    {"logs"},
    {"store"},
    {"execution"},
    {"engine"},
    {"shutdown"},
    {"http"},
    {"api"},
    {"streams", "fencing"},
    {"sync"},
    {"client"},
    {"effects"},
    {"integrations"},
    {"testing"},
    {"cli"},
    {"tools"},
)
"""The packages, lowest first. A package imports only from layers before its own."""

RANKS = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}

NOT_YET: set[tuple[str, str]] = set()
"""Package pairs that still import upward. Remove a pair with its last import; never add one."""

NICKNAMES = frozenset(
    "house door room face hands post resting intake adoption complaints dealings dealing dealer errand "
    "graveyard tale book desk living willing blows bell ear heart turnstile strangers looks shown told "
    "veiled homes tally floors outlook occupied occupation life seam".split()
)

PRIVATE_WORDS = frozenset(
    "told tell tells said say heard unsaid veiled who whom look shown room seam house door errand "
    "dealings dealer graveyard tale desk strangers homes tally floors outlook".split()
)
"""Words that do not say what a function does or what an attribute or a parameter holds."""


PATHS = sorted(ROOT.rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Return every module of the package, parsed once for all tests of this file."""
    return {path: ast.parse(path.read_text()) for path in PATHS}


@pytest.fixture(scope="module")
def modules(trees) -> list[tuple[Path, list[ast.stmt]]]:
    """Return the statements of every module of the package."""
    return [(path, list(statements(tree))) for path, tree in trees.items()]


def imported(module: list[ast.stmt]) -> Iterator[str]:
    """Yield the packages of Outlast that a module imports, also for types only and within functions."""
    for node in module:
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "outlast" and rest.partition(".")[0] in RANKS:
                yield rest.partition(".")[0]


def test_every_package_has_a_layer():
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in PATHS}
    assert packages - {"__init__", "__main__"} <= set(RANKS)


def test_packages_import_only_from_lower_layers(modules):
    upward = set()
    for path, module in modules:
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if package in RANKS:
            upward |= {
                (package, other)
                for other in imported(module)
                if other != package and RANKS[other] >= RANKS[package]
            }
    assert upward == NOT_YET


def test_only_tools_and_testing_import_the_root(modules):
    """`outlast/__init__.py` re-exports api, so that a package below api must not import it."""
    found = set()
    for path, module in modules:
        for node in module:
            if isinstance(node, ast.ImportFrom) and node.module == "outlast":
                if {alias.name for alias in node.names} - set(RANKS):
                    found.add(path.relative_to(ROOT).parts[0])
            elif isinstance(node, ast.Import) and "outlast" in {alias.name for alias in node.names}:
                found.add(path.relative_to(ROOT).parts[0])
    assert found <= {"tools", "testing"}


def test_packages_are_imported_by_name_in_four_places():
    """`cli/app.py` imports commands, `api/targets` programs, `store/address` stores of its own, and
    `api/lazy_names` rarely used names."""
    found = {str(path.relative_to(ROOT)) for path in PATHS if "import_module(" in path.read_text()}
    assert found == {"api/lazy_names.py", "api/targets.py", "cli/app.py", "store/address.py"}


def test_no_module_or_class_has_a_nickname(modules):
    found = []
    for path, module in modules:
        if NICKNAMES & set(path.stem.split("_")):
            found.append(str(path.relative_to(ROOT)))
        for node in module:
            if isinstance(node, ast.ClassDef):
                words = re.sub(r"(?<!^)(?=[A-Z])", " ", node.name).lower().split()
                if NICKNAMES & set(words):
                    found.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert found == []


def test_functions_attributes_and_parameters_have_no_private_words(trees):
    found = []
    for path, tree in trees.items():
        # The names of tests are sentences.
        for node in ast.walk(tree):
            for name in names_in(node):
                if PRIVATE_WORDS & set(name.split("_")) and not name.startswith("test_"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert found == []


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names of functions, parameters and attributes that a node defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


APPS = ("api/outlast.py", "sync/app.py", "client/client.py", "client/sync.py")


def private_names(tree: ast.AST) -> set[str]:
    """Return the private attributes and methods that the classes of a module define."""
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if re.match("_[^_]", name)}


def test_no_layer_above_api_reads_what_is_private_to_an_app(trees):
    """`api/internals.py`, `sync/internals.py` and `client/internals.py` are the ways in."""
    trees = {path.relative_to(ROOT): tree for path, tree in trees.items()}
    private = set.union(*(private_names(trees[Path(app)]) for app in APPS))
    assert {"_lifecycle", "_open", "_async"} <= private
    own: dict[str, set[str]] = {}
    for path, tree in trees.items():
        own.setdefault(path.parts[0], set()).update(private_names(tree))
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        if RANKS.get(path.parts[0], 0) > RANKS["api"] or path.parts[0] == "http"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in private - own[path.parts[0]]
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert found == []
