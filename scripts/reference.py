"""Write the reference pages, docs/reference-*.md, from the docstrings of the public modules.

`make reference` writes them. With --check, which `make lint` uses, nothing is written and the exit
code is 1 if a page is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, get_overloads

from reference_pages import CONSTRUCTED, PAGES, SUITES

from outlast.api.run_filters import RunFilters
from outlast.api.schedule import ScheduleOptions

DOCS = Path(__file__).parents[1] / "docs"
WIDTH_MAX = 88
"""Columns of a signature. The site shows this many without scrolling."""

DEFAULT_MAX = 60
"""Characters of a default. A longer one appears as `...`."""

INDEX_MIN = 8
"""From how many methods on a class begins with a table of them."""

UNINFORMATIVE = {"Any", inspect.formatannotation(inspect.Signature.empty)}
"""Return types that a signature does not show."""
OPTIONS: dict[str, Any] = {
    "Unpack[RunFilters]": RunFilters,
    "Unpack[ScheduleOptions]": ScheduleOptions,
}
"""Groups of options that a signature shows one by one. Each may be left out."""


def main() -> None:
    if missing := unlisted():
        sys.exit(f"Add to a page in scripts/reference_pages.py: {', '.join(missing)}.")
    if "--check" in sys.argv[1:]:
        stale = [path(name).name for name in PAGES if path(name).read_text() != render(name)]
        if stale:
            sys.exit(f"Out of date: {', '.join(stale)}. Run `make reference`.")
        return
    for name in PAGES:
        path(name).write_text(render(name))


def unlisted() -> list[str]:
    """Return the public names of the modules that have a page but are on none."""
    listed = {name for _, name in _names()}
    return sorted(
        f"{module.__name__}.{name}"
        for module in {module for module, _ in _names()}
        for name in getattr(module, "__all__", ())
        if name not in listed
    )


def _names() -> list[tuple[Any, str]]:
    return [
        named(page.module, name)
        for page in PAGES.values()
        for section in page.sections
        for name in section.names
    ]


def path(name: str) -> Path:
    return DOCS / f"reference-{name}.md"


def render(name: str) -> str:
    """Return the page as Markdown."""
    page = PAGES[name]
    parts = ["<!-- Written by `make reference` from the docstrings. Do not edit. -->"]
    parts += [f"# {page.title or page.module}", page.intro]
    for section in page.sections:
        parts.append(f"## {section.title}")
        if section.intro:
            parts.append(section.intro)
        parts += _entries([named(page.module, one) for one in section.names])
    return "\n\n".join(parts) + "\n"


def named(module: str, name: str) -> tuple[Any, str]:
    """Return the module and the bare name of a name on a page."""
    home, _, bare = name.rpartition(".")
    return importlib.import_module(home or module), bare


def _entries(names: list[tuple[Any, str]]) -> Iterator[str]:
    if all(_is_error(getattr(module, name)) for module, name in names):
        yield _error_table(names)
        return
    for module, name in names:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield from _class(name, thing)
        elif inspect.isroutine(thing):
            yield f"### `{name}`"
            yield _signature(name, thing)
            yield _markdown(inspect.getdoc(thing))
        else:
            yield f"### `{name}`"
            yield _markdown(_constant_doc(module, name) or inspect.getdoc(thing))


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def _error_table(names: list[tuple[Any, str]]) -> str:
    lines = ["| error | meaning |", "|---|---|"]
    for module, name in names:
        first = _markdown(inspect.getdoc(getattr(module, name))).partition("\n\n")[0]
        lines.append(f"| [`{name}`](errors.md#{name.lower()}) | {_cell(first)} |")
    return "\n".join(lines)


def _class(name: str, cls: type) -> Iterator[str]:
    yield f"### class `{name}`"
    if name in CONSTRUCTED:
        yield _signature(name, cls)
    doc = cls.__doc__ or ""
    if not dataclasses.is_dataclass(cls) or not doc.startswith(f"{name}("):
        yield _markdown(inspect.cleandoc(doc))
    public_base = next((base for base in cls.__mro__[1:] if _is_public(base)), None)
    if public_base is not None:
        yield f"It also has the attributes and methods of `{public_base.__name__}`."
    if name in SUITES:
        return
    attributes = list(_attributes(cls))
    if attributes:
        lines = ["| attribute | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_type(kind)} | {_cell(doc)} |" for name, kind, doc in attributes]
        yield "\n".join(lines)
    methods = list(_methods(cls))
    if len(methods) >= INDEX_MIN:
        lines = ["| method | does |", "|---|---|"]
        lines += [
            f"| [`{method}`](#{_anchor(f'{name}.{method}')}) | {_cell(_summary(function))} |"
            for method, function in methods
        ]
        yield "\n".join(lines)
    for method, function in methods:
        yield f"#### `{name}.{method}`"
        yield _signature(method, function, skip_self=True)
        yield _markdown(inspect.getdoc(function))


@functools.cache
def _public() -> set[type]:
    things = [getattr(module, name) for module, name in _names()]
    return {thing for thing in things if inspect.isclass(thing)}


def _is_public(cls: type) -> bool:
    return cls in _public()


def _own_bases(cls: type) -> list[type]:
    """Return the class and its private bases in Outlast, whose members appear with it.

    The members of a public base, and of what that is based on, appear there.
    """
    bases = takewhile(lambda base: base is cls or not _is_public(base), cls.__mro__)
    return [base for base in bases if base is cls or base.__module__.startswith("outlast")]


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
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


def _attributes(cls: type) -> Iterator[tuple[str, str, str]]:
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


def _constant_doc(module: Any, name: str) -> str:
    """Return what stands below the constant in the module that defines it."""
    body = ast.parse(inspect.getsource(module)).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return _string(following)
    for node in body:
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return _constant_doc(importlib.import_module(node.module or ""), name)
    return ""


def _signature(name: str, function: Any, *, skip_self: bool = False) -> str:
    signature = _explicit(function)
    parameters = list(signature.parameters.values())
    if skip_self and parameters and parameters[0].name in {"self", "cls"}:
        parameters = parameters[1:]
    words, star = [], False
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            star = True
        elif one.kind is one.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        options = list(_options_of(one))
        words += ["*", *options] if options and not star else options or [_parameter(one)]
        last = one is parameters[-1] or parameters[parameters.index(one) + 1].kind != one.kind
        if one.kind is one.POSITIONAL_ONLY and last:
            words.append("/")
    start = "async def " if inspect.iscoroutinefunction(function) else "def "
    if inspect.isclass(function):
        start, returns = "class ", ""
    else:
        returned = _annotation(signature.return_annotation)
        returns = "" if returned in UNINFORMATIVE or returned.startswith("_") else f" -> {returned}"
    line = f"{start}{name}({', '.join(words)}){returns}"
    if len(line) > WIDTH_MAX:
        inner = "".join(f"    {word},\n" for word in words)
        line = f"{start}{name}(\n{inner}){returns}"
    return f"```py\n{line}\n```"


def _explicit(function: Any) -> inspect.Signature:
    """Return the signature, or that of an overload which names what `**options` stands for."""
    signature = inspect.signature(function)
    if _takes_any(signature):
        for overload in get_overloads(inspect.unwrap(function)):
            variant = inspect.signature(overload)
            if not _takes_any(variant) and len(variant.parameters) > 1:
                return variant
    return signature


def _takes_any(signature: inspect.Signature) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())


def _options_of(one: inspect.Parameter) -> Iterator[str]:
    """Yield what `**options` stands for, if it is a group of options in OPTIONS."""
    group = OPTIONS.get(_annotation(one.annotation)) if one.kind is one.VAR_KEYWORD else None
    for name, annotation in {} if group is None else group.__annotations__.items():
        yield f"{name}: {annotation.__forward_arg__} = ..."


def _parameter(one: inspect.Parameter) -> str:
    name = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
    if one.annotation is one.empty:
        return name if one.default is one.empty else f"{name}={_default(one.default)}"
    text = f"{name}: {_annotation(one.annotation)}"
    return text if one.default is one.empty else f"{text} = {_default(one.default)}"


def _default(value: Any) -> str:
    if inspect.isclass(value):
        return value.__name__
    text = repr(value)
    return "..." if value is ... or text.startswith("<") or len(text) > DEFAULT_MAX else text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _type(annotation: str) -> str:
    """Return a type for a cell of a table, where a `|` would end the cell."""
    if not annotation:
        return ""
    if "|" not in annotation:
        return f"`{annotation}`"
    node = ast.parse(annotation, mode="eval").body
    parts: list[str] = []
    while isinstance(node, ast.BinOp):
        parts.insert(0, ast.unparse(node.right))
        node = node.left
    parts.insert(0, ast.unparse(node))
    return " or ".join(
        f"<code>{part.replace('|', '&#124;')}</code>" if "|" in part else f"`{part}`"
        for part in parts
    )


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site generate it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _summary(function: Any) -> str:
    """Return the first sentence of a docstring, without its full stop."""
    first = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[^.]{2}\w)\.(?= [A-Z`]|$)", first)[0].rstrip(".:")


def _cell(text: str) -> str:
    return " ".join(_markdown(text).split()).replace("|", "&#124;").removesuffix(".")


def _markdown(doc: str | None) -> str:
    """Return a docstring with one paragraph or list item per line, and its examples as code."""
    blocks = re.split(r"\n\s*\n", doc or "")
    return "\n\n".join(_block(group) for group in _with_code_joined(blocks))


def _with_code_joined(blocks: list[str]) -> Iterator[str]:
    """Join examples that contain blank lines."""
    code: list[str] = []
    for block in blocks:
        if block.startswith("    "):
            code.append(block)
            continue
        if code:
            yield "\n\n".join(code)
            code = []
        yield block
    if code:
        yield "\n\n".join(code)


def _block(block: str) -> str:
    if not block.startswith("    "):
        return re.sub(r"\n(?!\s*(?:[-*] |\d+\. |\|))\s*", " ", block)
    code = textwrap.dedent(block)
    try:
        compile(code, "example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return f"```text\n{code}\n```"
    return f"```py\n{code}\n```"


if __name__ == "__main__":
    main()
