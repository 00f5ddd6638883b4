"""Find calls in workflow code whose answer differs when a run is replayed.

The check reads source and executes nothing. It covers a workflow's function and the plain functions
of the same file that it calls. Bodies of steps and effects are not workflow code. A line that ends
with `# outlast: ignore` is skipped.
"""

from __future__ import annotations

import ast
import linecache
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from outlast.execution.definitions import WorkflowDefinition

log = logging.getLogger("outlast")

IGNORE = "# outlast: ignore"

_NOW = "now()"
_RANDOM = "random()"
_UUID = "uuid()"
_SLEEP = "sleep()"
_STEP = "a step"

_EXACT: Mapping[str, str] = {
    **dict.fromkeys(
        [
            *(
                "time.time",
                "time.time_ns",
                "time.monotonic",
                "time.monotonic_ns",
                "time.perf_counter",
            ),
            *(
                "time.perf_counter_ns",
                "time.process_time",
                "time.localtime",
                "time.gmtime",
                "time.ctime",
            ),
            *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
            "datetime.date.today",
        ],
        _NOW,
    ),
    **dict.fromkeys(["uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"], _UUID),
    "time.sleep": _SLEEP,
    **dict.fromkeys(
        [
            *(
                "open",
                "input",
                "io.open",
                "os.open",
                "os.system",
                "os.popen",
                "os.listdir",
                "os.scandir",
            ),
            *("os.walk", "os.urandom", "os.getrandom", "urllib.request.urlopen"),
            *(f"pathlib.Path().{name}" for name in ("open", "read_text", "read_bytes")),
            *(
                f"pathlib.Path().{name}"
                for name in ("write_text", "write_bytes", "exists", "iterdir", "glob")
            ),
        ],
        _STEP,
    ),
}
_MODULES: Mapping[str, str] = {
    "random": _RANDOM,
    "numpy.random": _RANDOM,
    "secrets": f"{_UUID} or {_STEP}",
    **dict.fromkeys(["requests", "httpx", "socket", "subprocess", "http.client"], _STEP),
}
_HARMLESS = frozenset({"secrets.compare_digest"})
_SEEDED = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})
"""Deterministic when they are given a seed."""

_WORKFLOW = ("outlast.workflow", "outlast.sync.workflow")
_TRANSPARENT = ("functools.", "contextlib.")
"""Decorators under which a function is still called as plain code."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Suspect(NamedTuple):
    """One call whose answer may differ from one execution to the next."""

    workflow: str
    file: str
    line: int
    call: str
    instead: str

    def __str__(self) -> str:
        return f"{self.call} at {self.file}:{self.line} (use {self.instead} instead)"


class _Scope:
    """Names that are bound in a module or a function, and the scope around it."""

    def __init__(self, node: ast.Module | Function, outer: _Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, str | Function | None] = {}
        if not isinstance(node, ast.Module):
            arguments = node.args
            for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                self.names[argument.arg] = None
            for variadic in (arguments.vararg, arguments.kwarg):
                if variadic is not None:
                    self.names[variadic.arg] = None
        imported: dict[str, str] = {}
        for child in _own_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    top = alias.name.partition(".")[0]
                    imported[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(child, ast.ImportFrom) and not child.level:
                for alias in child.names:
                    imported[alias.asname or alias.name] = f"{child.module}.{alias.name}"
            elif isinstance(child, Function):
                self.names[child.name] = child
            elif isinstance(child, ast.ClassDef):
                self.names[child.name] = None
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                self.names.setdefault(child.id, None)
        self.names |= imported

    def find(self, name: str) -> tuple[str | Function | None, _Scope | None]:
        """Return what a name is bound to, and where. A name that is not bound is a builtin."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope
            scope = scope.outer
        return name, None

    def dotted(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression refers to; `()` stands for a call in it."""
        if isinstance(node, ast.Name):
            bound, _ = self.find(node.id)
            return bound if isinstance(bound, str) else None
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Call):
            base = self.dotted(node.func)
            return None if base is None else f"{base}()"
        return None


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function without those inside functions and classes in it."""
    left = [*ast.iter_child_nodes(node)][::-1]
    while left:
        child = left.pop()
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            left += [*ast.iter_child_nodes(child)][::-1]


class _File:
    """The parsed source of one file."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.module = _Scope(self.tree)
        self.functions = list(self._functions(self.tree))

    def _functions(
        self, node: ast.AST, around: tuple[Function, ...] = ()
    ) -> Iterator[tuple[Function, tuple[Function, ...]]]:
        """Yield every function with those around it, outermost first."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield child, around
                yield from self._functions(child, (*around, child))
            elif isinstance(child, ast.stmt):
                yield from self._functions(child, around)

    def scope(self, around: tuple[Function, ...]) -> _Scope:
        """Return the scope in which a function is defined."""
        scope = self.module
        for function in around:
            scope = _Scope(function, scope)
        return scope

    def workflows(self) -> Iterator[tuple[Function, _Scope]]:
        """Yield the functions that are decorated with `@workflow`, or passed to it."""
        passed = {
            argument.id
            for call in ast.walk(self.tree)
            if isinstance(call, ast.Call) and self.module.dotted(call.func) in _WORKFLOW
            for argument in call.args
            if isinstance(argument, ast.Name)
        }
        for function, around in self.functions:
            if not function.decorator_list and function.name not in passed:
                continue
            scope = self.scope(around)
            decorators = [_called(decorator) for decorator in function.decorator_list]
            decorated = any(scope.dotted(decorator) in _WORKFLOW for decorator in decorators)
            if decorated or (function.name in passed and not around):
                yield function, scope

    def suspects(self, function: Function, scope: _Scope) -> list[Suspect]:
        """Return the suspicious calls of a workflow and of the functions it calls, by line."""
        found: dict[tuple[int, str], Suspect] = {}
        seen: set[Function] = set()
        left = [(function, scope)]
        while left:
            current, around = left.pop()
            if current in seen:
                continue
            seen.add(current)
            inner = _Scope(current, around)
            for call, within in _calls(current.body, inner):
                if isinstance(call.func, ast.Name):
                    bound, home = within.find(call.func.id)
                    if isinstance(bound, Function) and home is not None and _is_plain(bound, home):
                        left.append((bound, home))
                name = within.dotted(call.func)
                instead = None if name is None else _instead(name, call)
                if name is None or instead is None or IGNORE in self._line(call.lineno):
                    continue
                call_text = f"{name.replace('()', '(…)')}()"
                suspect = Suspect(function.name, self.path, call.lineno, call_text, instead)
                found.setdefault((call.lineno, name), suspect)
        return [found[key] for key in sorted(found)]

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if number <= len(self.lines) else ""


def _calls(body: list[Any], scope: _Scope) -> Iterator[tuple[ast.Call, _Scope]]:
    """Yield the calls of a function's body and of the plain functions defined in it."""
    left = [(node, scope) for node in body]
    while left:
        node, around = left.pop()
        if isinstance(node, Function):
            if _is_plain(node, around):
                inner = _Scope(node, around)
                left += [(child, inner) for child in node.body]
            continue
        if isinstance(node, ast.Call):
            yield node, around
        left += [(child, around) for child in ast.iter_child_nodes(node)]


def _is_plain(function: Function, scope: _Scope) -> bool:
    """Return whether calling a function executes its body here.

    Nothing is known about decorators other than the transparent ones.
    """
    names = [scope.dotted(_called(decorator)) for decorator in function.decorator_list]
    return all(name is not None and name.startswith(_TRANSPARENT) for name in names)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _instead(name: str, call: ast.Call) -> str | None:
    """Return what to use instead of a call, or None if the call is harmless."""
    if name in _HARMLESS or (name in _SEEDED and (call.args or call.keywords)):
        return None
    if name in _EXACT:
        return _EXACT[name]
    module = name.rpartition(".")[0]
    return _MODULES.get(module)


def check_source(path: Path) -> tuple[int, list[Suspect]]:
    """Return how many workflows a Python file has, and the suspicious calls of all of them.

    Raise SyntaxError or OSError if the file cannot be read.
    """
    file = _File(str(path), path.read_text())
    workflows = list(file.workflows())
    return len(workflows), [found for one in workflows for found in file.suspects(*one)]


def warn_once(workflow: WorkflowDefinition, facts: Mapping[str, Any]) -> None:
    """Log what the check finds in a workflow, the first time it executes in this process."""
    if workflow.checked:
        return
    workflow.checked = True
    suspects = check_function(workflow.fn)
    if suspects:
        log.warning(
            "Workflow %s calls %s. A run that resumes after a restart executes this code again and "
            "gets another result, so it may be parked or end differently. End a line with `%s` to "
            "accept it, or set check_workflows=0 to turn this check off.",
            workflow.name,
            ", ".join(map(str, suspects)),
            IGNORE,
            extra=facts,
        )


def check_function(fn: Callable[..., Any]) -> list[Suspect]:
    """Return the suspicious calls of a workflow's function; none if it has no source."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return []
    file = _parsed(code.co_filename)
    if file is None:
        return []
    for function, around in file.functions:
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        if function.name == code.co_name and first == code.co_firstlineno:
            return file.suspects(function, file.scope(around))
    return []


@lru_cache(maxsize=16)
def _parsed(path: str) -> _File | None:
    try:
        source = "".join(linecache.getlines(path))
        return _File(path, source) if source else None
    except (SyntaxError, ValueError, RecursionError, SystemError):
        # The file was changed since, or is not Python. CPython 3.11 raises SystemError if two
        # threads parse at the same time. A check that only warns must not stop a run.
        return None
