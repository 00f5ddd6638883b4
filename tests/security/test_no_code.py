"""Nothing that is read executes anything: no pickle, no eval, and no module is imported because a journal, a message or a name says so."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import outlast
from outlast.values.exceptions import decode_error

PACKAGE = Path(outlast.__file__).parent
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "jsonpickle",
    "imp",
    "runpy",
    "code",
}
CALLS = {"eval", "exec", "compile", "__import__"}
IMPORTS = {
    "cli/target.py": "the module or file that whoever starts a command names",
    "store/address.py": "the module of a store, from a table",
}
"""Where something is imported by a name that is computed, and whose name that is."""


def trees() -> list[tuple[str, ast.Module]]:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 250
    return [(str(file.relative_to(PACKAGE)), ast.parse(file.read_text())) for file in files]


def test_nothing_in_the_package_can_execute_what_it_reads() -> None:
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [(name, one.name) for one in node.names if one.name.partition(".")[0] in MODULES]
            elif isinstance(node, ast.ImportFrom):
                found += [(name, node.module)] if (node.module or "").partition(".")[0] in MODULES else []
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
                found.append((name, node.func.id))
            elif isinstance(node, ast.keyword) and node.arg == "shell":
                found.append((name, "a shell"))
    assert found == []


def test_what_is_imported_by_name_is_named_by_whoever_starts_the_program() -> None:
    found = {
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Name, ast.Attribute))
        and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        in ("import_module", "exec_module")
    }
    assert found == set(IMPORTS)


def test_yaml_is_read_as_data() -> None:
    """Of manifests, which come from anywhere."""
    for name, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "yaml"
            ):
                assert node.attr not in {
                    "load",
                    "load_all",
                    "unsafe_load",
                    "full_load",
                    "Loader",
                    "UnsafeLoader",
                    "FullLoader",
                }, name


TYPES = [
    "antigravity:X", "this:s", "os:system", "subprocess:Popen", "builtins:eval", "builtins:SystemExit", "builtins:KeyboardInterrupt", "sys:exit",
    "outlast.cli:main", "__main__:__builtins__", "lazy_module:Anything", "lazy_module:real.Inner", ":", "", "a", "builtins:type", "builtins:object",
]  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_the_type_of_a_recorded_error_imports_and_calls_nothing(name, monkeypatch) -> None:
    asked = []
    lazy = types.ModuleType("lazy_module")
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]  # as modules have it that import on demand
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    before = set(sys.modules)
    text = json.dumps({"type": name, "message": "m", "args": ["touch /tmp/owned"], "state": {"x": 1}})
    error = decode_error(text)
    assert isinstance(error, Exception)
    assert set(sys.modules) == before
    assert asked == []


def test_looking_at_a_store_imports_nothing_that_it_names(tmp_path) -> None:
    """A module of that name lies where Python would find it, and leaves a mark when it is imported."""
    (tmp_path / "hostile_module.py").write_text("open('owned', 'w').close()\nclass Evil(Exception): pass\n")
    program = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
from outlast.cli import main
from outlast.store.address import store_at
from outlast.store.verbs import *
store = store_at("sqlite:///x.db")
store.open()
error = json.dumps({{"type": "hostile_module:Evil", "message": "m", "args": []}})
row = store.commit([Enlist("w", "h", 1, 1e6), Submit("r", "hostile_module:flow", '{{"__reduce__": "hostile_module"}}', "t", "00", worker="w")])[1].row
store.commit([Record(row.pk, 1, row.fence, "step", "hostile_module:step#1", 1.0, error=error), Settle(row.pk, row.fence, "failed", error=error)])
store.close()
for words in (["runs"], ["show", "r", "--full"], ["show", "r", "--json"], ["retry", "r"], ["chaos", "verify", "--since", "1h"]):
    try:
        main([*words, "--store", "sqlite:///x.db"])
    except SystemExit:
        pass
print("imported" if "hostile_module" in sys.modules else "not imported")
"""
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.splitlines()[-1] == "not imported"
    assert "hostile_module.Evil" in said.stdout
    assert not (tmp_path / "owned").exists()
