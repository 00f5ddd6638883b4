"""Write the reference pages, docs/reference-*.md, from the docstrings of the public modules.

`make reference` writes them. With --check, which `make lint` uses, nothing is written and the exit
code is 1 if a page is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_overloads

from reference_members import (
    attributes_of,
    constant_doc,
    is_public,
    is_same,
    listed_names,
    methods_of,
    named,
    page_of,
)
from reference_pages import CONSTRUCTED, PAGES, SUITES

from outlast.api.run_filters import RunFilters
from outlast.api.schedule import ScheduleOptions
from outlast.explain.texts import find

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
    listed = {name for _, name in listed_names()}
    return sorted(
        f"{module.__name__}.{name}"
        for module in {module for module, _ in listed_names()}
        for name in getattr(module, "__all__", ())
        if name not in listed
    )


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
        parts += _entries([named(page.module, one) for one in section.names], page.async_module)
    return "\n\n".join(parts) + "\n"


def _entries(names: list[tuple[Any, str]], async_module: str) -> Iterator[str]:
    if all(_is_error(getattr(module, name)) for module, name in names):
        yield _error_table(names)
        return
    async_forms = importlib.import_module(async_module) if async_module else None
    same = [
        (name, thing)
        for name, thing in ((name, getattr(module, name)) for module, name in names)
        if is_same(thing, getattr(async_forms, name, None))
    ]
    if same:
        yield _async_table("function", same, async_module)
    for module, name in names:
        thing = getattr(module, name)
        async_form = getattr(async_forms, name, None)
        if is_same(thing, async_form):
            continue
        if inspect.isclass(thing):
            yield from _class(name, thing, async_form, async_module)
        elif inspect.isroutine(thing):
            yield f"### `{name}`"
            yield _signature(name, thing)
            yield _markdown(inspect.getdoc(thing))
        else:
            yield f"### `{name}`"
            yield _markdown(constant_doc(module, name) or inspect.getdoc(thing))


def entry_page(name: str) -> str:
    """Return the page that explains an error, with its anchor."""
    entry = find(name)
    if entry is None:
        sys.exit(f"{name} is not in src/outlast/explain/errors.md.")
    return entry.page


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def _error_table(names: list[tuple[Any, str]]) -> str:
    lines = ["| error | meaning |", "|---|---|"]
    for module, name in names:
        first = _markdown(inspect.getdoc(getattr(module, name))).partition("\n\n")[0]
        lines.append(f"| [`{name}`]({entry_page(name)}) | {_cell(first)} |")
    return "\n".join(lines)


def _async_table(kind: str, same: list[tuple[str, Any]], async_module: str) -> str:
    """Return a table of names that have the docstring of their async form, with links to it."""
    lines = [f"| {kind} | does |", "|---|---|"]
    for name, thing in same:
        target = f"reference-{page_of(async_module, name.partition('.')[0])}.md#{_anchor(name)}"
        lines.append(f"| [`{name}`]({target}) | {_cell(_summary(thing))} |")
    return "\n".join(lines)


def _class(
    name: str, cls: type, async_form: type | None = None, async_module: str = ""
) -> Iterator[str]:
    """Yield the entry of a class. What is the same in its async form appears only as a link."""
    yield f"### class `{name}`"
    if name in CONSTRUCTED:
        yield _signature(name, cls)
    doc = cls.__doc__ or ""
    if not dataclasses.is_dataclass(cls) or not doc.startswith(f"{name}("):
        yield _markdown(inspect.cleandoc(doc))
    public_base = next((base for base in cls.__mro__[1:] if is_public(base)), None)
    if public_base is not None:
        yield f"It also has the attributes and methods of `{public_base.__name__}`."
    if name in SUITES:
        return
    async_attributes = {one[0] for one in attributes_of(async_form)} if async_form else set()
    attributes = [one for one in attributes_of(cls) if one[0] not in async_attributes]
    if attributes:
        lines = ["| attribute | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_type(kind)} | {_cell(doc)} |" for name, kind, doc in attributes]
        yield "\n".join(lines)
    methods = list(methods_of(cls))
    async_methods = dict(methods_of(async_form)) if async_form else {}
    same = [
        (f"{name}.{method}", function)
        for method, function in methods
        if is_same(function, async_methods.get(method))
    ]
    if same:
        yield "These methods block. The links lead to their async forms, with the same arguments:"
        yield _async_table("method", same, async_module)
        methods = [one for one in methods if f"{name}.{one[0]}" not in dict(same)]
        if methods:
            yield "The other methods differ from their async forms."
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
