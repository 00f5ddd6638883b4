"""The reference pages: written by `make reference`, and complete."""

from __future__ import annotations

import importlib
import inspect
import re
import sys

import pytest
from markdown_pages import DOCS, MODULES, ROOT, headings

sys.path.insert(0, str(ROOT / "scripts"))
import reference
from reference_pages import PAGES


@pytest.mark.extended
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_docstrings_say(page) -> None:
    """`make test` begins with `make lint`, which compares the same pages."""
    assert reference.path(page).read_text() == reference.render(page), "run `make reference`"


def test_every_reference_page_is_generated() -> None:
    assert {path.name for path in DOCS.glob("reference-*.md")} == {
        reference.path(page).name for page in PAGES
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_its_page(module) -> None:
    public = importlib.import_module(module)
    names = {name for name in public.__all__ if not is_in_outlast(module, name)}
    assert sorted(names - described(module)) == []


@pytest.mark.parametrize("module", ["outlast", "outlast.sync"])
def test_every_documented_method_is_on_its_page(module) -> None:
    public = importlib.import_module(module)
    found = described(module)
    methods = {
        f"{name}.{method}"
        for name, cls in inspect.getmembers(public, inspect.isclass)
        if name in public.__all__ and not issubclass(cls, BaseException)
        if not is_in_outlast(module, name)
        for method, value in vars(cls).items()
        if not method.startswith("_") and inspect.isfunction(value) and value.__doc__
    }
    assert len(methods) > 50
    assert sorted(methods - found) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_has_a_description(page) -> None:
    text = reference.path(page).read_text()
    entries = re.split(r"^#{3,4} ", text, flags=re.MULTILINE)[1:]
    prose = [re.sub(r"```.*?```", "", entry, flags=re.DOTALL) for entry in entries]
    assert [entry.split("\n")[0] for entry in prose if len(entry.split()) < 4] == []


def is_in_outlast(module: str, name: str) -> bool:
    """Return whether `outlast.sync` only passes on a name of `outlast`."""
    if module != "outlast.sync":
        return False
    sync, core = importlib.import_module(module), importlib.import_module("outlast")
    return getattr(sync, name) is getattr(core, name)


def described(module: str) -> set[str]:
    """Return the names with a heading, or a row with a link, on a module's pages."""
    pages = {f"reference-{name}" for name, page in PAGES.items() if page.module == module}
    found: set[str] = set()
    for page in pages | {MODULES[module]}:
        path = DOCS / f"{page}.md"
        titles = (re.search(r"`([^`]+)`", title) for title in headings(path))
        found |= {title[1] for title in titles if title}
        rows = r"^\| \[`([\w.]+)`\]\((?:errors|reference)-[\w-]+\.md#"
        found |= set(re.findall(rows, path.read_text(), re.MULTILINE))
    return found
