"""Reading a store, a journal or a manifest executes and imports nothing."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from outlast.codec.exceptions import decode_error
from support.processes import Program

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
    "api/lazy_names.py": "the module of a public name, from a table",
    "api/targets.py": "the module or file that the user names on the command line",
    "cli/app.py": "the module of a command, from a table",
    "store/address.py": "the module of a store, from a table",
}
"""The modules that import by a computed name, and where the name comes from."""


def nodes(pattern: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every syntax node of the modules whose text matches `pattern`, with the module's path."""
    files, contains = sorted(PACKAGE.rglob("*.py")), re.compile(pattern, re.MULTILINE).search
    assert len(files) > 250
    for file in files:
        text = file.read_text()
        if contains(text):
            for node in ast.walk(ast.parse(text)):
                yield str(file.relative_to(PACKAGE)), node


def test_package_uses_no_pickle_eval_or_shell() -> None:
    found = []
    imports = rf"^\s*(import|from)\b.*\b({'|'.join(MODULES)})\b"
    for name, node in nodes(rf"{imports}|\b({'|'.join(CALLS)})\s*\(|\bshell\s*="):
        if isinstance(node, ast.Import):
            found += [
                (name, one.name) for one in node.names if one.name.partition(".")[0] in MODULES
            ]
        elif isinstance(node, ast.ImportFrom):
            found += (
                [(name, node.module)] if (node.module or "").partition(".")[0] in MODULES else []
            )
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
        ):
            found.append((name, node.func.id))
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.append((name, "a shell"))
    assert found == []


def test_only_listed_modules_import_by_a_computed_name() -> None:
    found = {
        name
        for name, node in nodes("import_module|exec_module")
        if isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Name, ast.Attribute))
        and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        in ("import_module", "exec_module")
    }
    assert found == set(IMPORTS)


def test_yaml_is_loaded_safely() -> None:
    """Of manifests, which come from anywhere."""
    used = {
        node.attr
        for _, node in nodes("yaml")
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "yaml"
    }
    assert used
    assert not used & {
        "load",
        "load_all",
        "unsafe_load",
        "full_load",
        "Loader",
        "UnsafeLoader",
        "FullLoader",
    }


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
    text = json.dumps(
        {"type": name, "message": "m", "args": ["touch /tmp/owned"], "state": {"x": 1}}
    )
    error = decode_error(text)
    assert isinstance(error, Exception)
    assert set(sys.modules) == before
    assert asked == []


def test_type_of_a_recorded_error_does_not_load_a_lazy_module(tmp_path, monkeypatch) -> None:
    file = tmp_path / "loads_late.py"
    file.write_text("class Evil(Exception): pass\n")
    spec = importlib.util.spec_from_file_location("loads_late", file)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loads_late", module)
    spec.loader.exec_module(module)
    decode_error(json.dumps({"type": "loads_late:Evil", "message": "m", "args": []}))
    assert "Evil" not in object.__getattribute__(module, "__dict__")


class MissingPlugin(ImportError):
    pass


@pytest.mark.parametrize(
    "kind", ["builtins:ImportError", "builtins:ModuleNotFoundError", "MissingPlugin"]
)
def test_printing_a_recorded_import_error_imports_nothing(kind, tmp_path, monkeypatch) -> None:
    """Python 3.12 and later import `name` when they print one that has `name_from`."""
    (tmp_path / "hostile_import.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = kind if ":" in kind else f"{__name__}:{kind}"
    state = {"name": "hostile_import", "name_from": "x", "path": "/x"}
    error = decode_error(json.dumps({"type": kind, "message": "m", "args": ["m"], "state": state}))
    assert isinstance(error, ImportError)
    assert "m" in "".join(traceback.format_exception(error))
    assert "hostile_import" not in sys.modules
    assert {getattr(error, name, None) for name in state} == {None}


def test_printing_a_recorded_syntax_error_ignores_its_end_offset() -> None:
    state = {
        "text": "x",
        "lineno": 1,
        "offset": 1,
        "end_lineno": 1,
        "end_offset": 10**7,
        "filename": "f",
    }
    text = json.dumps(
        {"type": "builtins:SyntaxError", "message": "m", "args": ["m"], "state": state}
    )
    assert len("".join(traceback.format_exception(decode_error(text)))) < 1000


UNICODE = [
    ("UnicodeDecodeError", {"object": "a", "start": -(2**40), "end": -(2**40) + 1}),
    ("UnicodeDecodeError", {"object": 5, "start": 0, "end": 1}),
    ("UnicodeEncodeError", {"object": 5, "start": 0, "end": 1}),
    ("UnicodeEncodeError", {"object": "a", "start": -(2**40), "end": -(2**40) + 1}),
    ("UnicodeTranslateError", {"object": [], "start": 0, "end": 1}),
]


def test_recorded_unicode_error_does_not_crash_the_process(tmp_path) -> None:
    """CPython trusts the fields of these errors: with others, str() reads memory anywhere."""
    texts = [
        json.dumps(
            {
                "type": f"builtins:{kind}",
                "message": "m",
                "args": [],
                "state": {"encoding": "x", "reason": "y", **state},
            }
        )
        for kind, state in UNICODE
    ]
    program = """
import sys
from outlast.codec.exceptions import decode_error
for text in sys.argv[1:]:
    print(decode_error(text))
"""
    with Program.python("-c", program, *texts, folder=tmp_path) as process:
        assert process.wait() == 0, process.describe()
    assert process.lines == [f"builtins.{kind}: m" for kind, _ in UNICODE]


class Guarded(Exception):
    calls: list[object] = []  # noqa: RUF012 - one for all is what is wanted

    @property
    def secret(self) -> str:
        return "computed"

    @secret.setter
    def secret(self, value: object) -> None:
        self.calls.append(value)

    def __setattr__(self, name: str, value: object) -> None:
        self.calls.append(name)
        super().__setattr__(name, value)


def test_the_state_of_a_recorded_error_calls_no_code_and_replaces_no_method() -> None:
    state = {
        "secret": 1,
        "with_traceback": 2,
        "__notes__": 3,
        "__class__": 4,
        "__outlast_seq__": 5,
        "free": 6,
    }
    text = json.dumps(
        {"type": f"{__name__}:Guarded", "message": "m", "args": ["m"], "state": state}
    )
    error = decode_error(text)
    assert isinstance(error, Guarded)
    assert Guarded.calls == []
    assert vars(error) == {"free": 6}


def test_cli_imports_no_module_named_in_a_store(tmp_path) -> None:
    """A module of that name lies where Python would find it, and leaves a mark when it is imported."""
    (tmp_path / "hostile_module.py").write_text(
        "open('owned', 'w').close()\nclass Evil(Exception): pass\n"
    )
    program = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
from outlast.cli import main
from outlast.store.address import store_at
from outlast.store.commands import *
store = store_at("sqlite:///x.db")
store.open()
error = json.dumps({{"type": "hostile_module:Evil", "message": "m", "args": []}})
row = store.commit([RegisterWorker("w", "h", 1, 1e6), Submit("r", "hostile_module:flow", '{{"__reduce__": "hostile_module"}}', "t", "00", worker="w")])[1].row
store.commit([Record(row.pk, 1, row.fence, "step", "hostile_module:step#1", 1.0, error=error), Settle(row.pk, row.fence, "failed", error=error)])
store.close()
for words in (["runs"], ["show", "r", "--full"], ["show", "r", "--json"], ["retry", "r"], ["chaos", "verify", "--since", "1h"]):
    try:
        main([*words, "--store", "sqlite:///x.db"])
    except SystemExit:
        pass
print("imported" if "hostile_module" in sys.modules else "not imported")
"""
    with Program.python("-c", program, folder=tmp_path) as process:
        assert process.wait() == 0, process.describe()
    assert process.lines[-1] == "not imported"
    assert "hostile_module.Evil" in process.output
    assert not (tmp_path / "owned").exists()
