"""Find what the reference describes: names, methods and attributes with their docstrings."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from reference_pages import PAGES


def listed_names() -> list[tuple[Any, str]]:
    return [
        named(page.module, name)
        for page in PAGES.values()
        for section in page.sections
        for name in section.names
    ]


def page_of(module: str, name: str) -> str:
    """Return the page that describes a name of a module."""
    return next(
        file
        for file, page in PAGES.items()
        if page.module == module
        and any(name == one for section in page.sections for one in section.names)
    )


def is_same(thing: Any, async_form: Any) -> bool:
    """Return whether a function of a sync module is described by its async form."""
    return (
        inspect.isroutine(thing)
        and async_form is not None
        and inspect.getdoc(thing) == inspect.getdoc(async_form)
    )


def named(module: str, name: str) -> tuple[Any, str]:
    """Return the module and the bare name of a name on a page."""
    home, _, bare = name.rpartition(".")
    return importlib.import_module(home or module), bare


@functools.cache
def _public() -> set[type]:
    things = [getattr(module, name) for module, name in listed_names()]
    return {thing for thing in things if inspect.isclass(thing)}


def is_public(cls: type) -> bool:
    return cls in _public()


def _own_bases(cls: type) -> list[type]:
    """Return the class and its private bases in Outlast, whose members appear with it.

    The members of a public base, and of what that is based on, appear there.
    """
    bases = takewhile(lambda base: base is cls or not is_public(base), cls.__mro__)
    return [base for base in bases if base is cls or base.__module__.startswith("outlast")]


def methods_of(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    seen: set[str] = set()
    for base in _own_bases(cls):
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if name.startswith("_") or name in seen or not inspect.isfunction(function):
                continue
            if function.__doc__:
                seen.add(name)
                yield name, function


DEFINITIONS = "outlast.execution.definitions"
"""The module of what a decorator records about a function. Its attributes are internal."""


def attributes_of(cls: type) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the description of each public attribute."""
    seen: set[str] = set()
    for base in _own_bases(cls):
        if base.__module__ == DEFINITIONS:
            continue
        for name, kind, doc in _declared(base):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, kind, doc


def _declared(cls: type) -> Iterator[tuple[str, str, str]]:
    body = _body(cls)
    fields = dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            doc = _string(following)
            if doc or fields:
                yield node.target.id, ast.unparse(node.annotation), doc
        elif isinstance(node, ast.FunctionDef):
            if any(
                _decorator(one) in {"property", "cached_property"} for one in node.decorator_list
            ):
                kind = ast.unparse(node.returns) if node.returns else ""
                yield node.name, kind, _of_property(ast.get_docstring(node) or "")
            elif node.name == "__init__":
                yield from _assigned(node)


def _of_property(doc: str) -> str:
    """Return a property's docstring as the description of an attribute."""
    words = inspect.cleandoc(doc).removeprefix("Return ")
    return words[:1].upper() + words[1:]


def _assigned(init: ast.FunctionDef) -> Iterator[tuple[str, str, str]]:
    """Yield the public attributes that `__init__` assigns, with the types of its parameters."""
    types = {
        one.arg: ast.unparse(one.annotation)
        for one in [*init.args.args, *init.args.kwonlyargs]
        if one.annotation
    }
    for node, following in zip(init.body, [*init.body[1:], None], strict=True):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                annotated = isinstance(node, ast.AnnAssign)
                kind = ast.unparse(node.annotation) if annotated else types.get(target.attr, "")
                yield target.attr, kind, _string(following)


def _body(cls: type) -> list[ast.stmt]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    [node] = ast.parse(source).body
    return node.body if isinstance(node, ast.ClassDef) else []


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""


def constant_doc(module: Any, name: str) -> str:
    """Return what stands below the constant in the module that defines it."""
    body = ast.parse(inspect.getsource(module)).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return _string(following)
    for node in body:
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return constant_doc(importlib.import_module(node.module or ""), name)
    return ""
