"""The architecture pages stay short, and name files, classes and functions that exist."""

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from markdown_pages import DOCS, ROOT, name, prose

from support.source_trees import statements

SOURCE = ROOT / "src/outlast"
PAGES = sorted(DOCS.glob("architecture*.md"))
LINES_MAX = 300
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^[\w.-]*/?(?:[\w-]+/)*[\w-]+\.(?:py|sql|lua|md|json|yaml)$")
FOLDER = re.compile(r"^(?:[a-z_]+/)+$")
MEMBER = re.compile(r"^([A-Z]\w+)\.(\w+)$")
DOTTED = re.compile(r"^[a-z_]+(?:\.[a-z_]+)+(?<!\.lua)(?<!\.sql)(?<!\.py)$")
IDENTIFIER = re.compile(r"^(?:[A-Z][a-z]+){2,}$|^[a-z]+(?:_[a-z]+)+$")
OF_OTHERS = {
    "pg_locks", "lock_timeout", "synchronous_commit", "wal_checkpoint", "fillfactor",
    "prometheus-client", "set_wakeup_fd", "pg_backend_pid", "TaskGroup",
}  # fmt: skip
"""Names of Python, Postgres and Prometheus."""


def named(page: Path) -> list[str]:
    """Return what a page shows as code in its text. Arguments of a call are left out."""
    return [code.partition("(")[0].strip() for code in CODE.findall(prose(page))]


@cache
def sources() -> str:
    kinds = ("*.py", "*.sql", "*.lua", "*.yaml")
    return "\n".join(
        path.read_text()
        for folder in (SOURCE, ROOT / "deploy")
        for kind in kinds
        for path in sorted(folder.rglob(kind))
    )


@cache
def words() -> set[str]:
    return set(re.findall(r"\w+", sources()))


@cache
def members() -> dict[str, set[str]]:
    """Return the names that each class of Outlast defines or inherits, by the name of the class."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(_defined(node))
                bases.setdefault(node.name, set()).update(
                    re.findall(r"\w+", " ".join(map(ast.unparse, node.bases)))
                )
    return {one: set().union(*(own[base] for base in _lineage(one, bases))) for one in own}


def _defined(class_: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(class_):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Attribute(value=ast.Name(id="self")):
                found.add(node.attr)
            case ast.AnnAssign(target=ast.Name()) | ast.Assign(targets=[ast.Name(), *_]):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                found.add(target.id)
    return found


def _lineage(one: str, bases: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [one]
    while waiting:
        if (current := waiting.pop()) in bases and current not in seen:
            seen.add(current)
            waiting += bases[current]
    return seen


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_file_and_folder_exists(page):
    paths = [one for one in named(page) if "/" in one and (PATH.match(one) or FOLDER.match(one))]
    missing = [one for one in paths if not ((SOURCE / one).exists() or (ROOT / one).exists())]
    assert missing == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_lua_file_and_sql_file_exists(page):
    files = [one for one in named(page) if re.match(r"^\w+\.(?:lua|sql)$", one)]
    missing = [one for one in files if not list((SOURCE / "store").rglob(one))]
    assert missing == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_class_has_the_member_that_is_named(page):
    pairs = [found.groups() for one in named(page) if (found := MEMBER.match(one))]
    assert [pair for pair in pairs if pair[1] not in members().get(pair[0], set())] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_dotted_name_exists(page):
    assert [one for one in named(page) if DOTTED.match(one) and not is_defined(one)] == []


def is_defined(dotted: str) -> bool:
    """Return whether a name like `compensation.undo` or `outlast.logs` is a module or in one."""
    *above, last = dotted.split(".")
    if above[0] in sys.stdlib_module_names:
        return hasattr(importlib.import_module(above[0]), last)
    if list(SOURCE.rglob(f"{last}.py")) or (SOURCE / last).is_dir() or f'"{dotted}"' in sources():
        return True
    modules = SOURCE.rglob(f"{above[-1]}.py")
    return any(re.search(rf"\b{last}\b", module.read_text()) for module in modules)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_identifier_occurs_in_the_source(page):
    identifiers = {one for one in named(page) if IDENTIFIER.match(one)} - OF_OTHERS
    assert sorted(identifiers - words()) == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_architecture_page_is_short_enough_to_scan(page):
    assert len(page.read_text().splitlines()) <= LINES_MAX, name(page)


def test_backends_have_the_files_that_their_table_names():
    page = (DOCS / "architecture-backends.md").read_text()
    table = page.partition("| `store/<backend>/` |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+\.py)` \| (.+) \|$", table, re.MULTILINE)
    backends = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}
    files = {
        backend: {path.name for path in (SOURCE / "store" / backend).glob("*.py")}
        for backend in backends
    }
    assert rows
    for file, text in rows:
        # A row that names backends is about those alone.
        only = {backend for backend, word in backends.items() if word in text} or set(backends)
        assert {backend for backend in backends if file in files[backend]} == only, file
    shared = set.intersection(*files.values()) - {"__init__.py"}
    assert shared <= {file for file, _ in rows}
