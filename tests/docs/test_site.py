"""The pages as the site and GitHub show them, and the docstrings that the reference shows."""

from __future__ import annotations

import importlib
import inspect
import re
import sys

import pytest
import yaml
from markdown_pages import DOCS, MODULES, PAGES, ROOT, fences, headings, name, prose, slug

DOCSTRING_LENGTH_MIN = 30


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)["nav"]
    named = list(leaves(nav))
    assert sorted(named) == sorted(set(named))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(there - set(named)) == [], "pages of docs/ that mkdocs.yml does not name"
    assert sorted(set(named) - there) == [], "pages that mkdocs.yml names and that are not there"


def leaves(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [leaf for entry in entries for leaf in leaves(entry)]


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in PAGES])
def test_no_heading_is_twice_on_a_page(page) -> None:
    """GitHub and the site number the second one each in its own way."""
    slugs = [slug(heading) for heading in headings(page)]
    assert sorted({one for one in slugs if slugs.count(one) > 1}) == []


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in PAGES])
def test_every_row_of_a_table_has_a_cell_for_each_column(page) -> None:
    """Of more GitHub shows none; and a `|` in code is one more on GitHub only."""
    for table in re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE):
        head, *rows = table.splitlines()
        assert [row for row in rows if columns(row) != columns(head)] == []


def columns(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row.strip())) - 1


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in DOCS.rglob("*.md")])
def test_what_belongs_to_an_item_of_a_list_is_indented_by_four(page) -> None:
    """By two or three it belongs to it on GitHub only: a list in it, or a paragraph after a blank line."""
    text = prose(page)
    assert re.findall(r"^ {1,3}(?:[-*+]|\d+\.) .*", text, re.MULTILINE) == []
    assert re.findall(r"(?<=\n\n) {1,3}\S.*", text) == []


CODE_WIDTH_MAX = 90
"""Columns that the site shows beside its two sidebars in a window of 1280 pixels."""


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in DOCS.rglob("*.md")])
def test_code_fits_beside_the_sidebars(page) -> None:
    in_fences = [line for block in fences(page) for line in block.text.splitlines()]
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n)+", prose(page))
    lines = [*in_fences, *(line for block in indented for line in block.splitlines())]
    is_list = re.compile(r" +(?:[-*+]|\d+\.) ")
    wide = [line for line in lines if len(line) > CODE_WIDTH_MAX and not is_list.match(line)]
    assert wide == []


PICTURES = [path for path in sorted(DOCS.glob("*.svg")) if path.name != "demo.svg"]
"""The recording of the demo is a dark terminal on every page."""


@pytest.mark.parametrize("picture", [pytest.param(path, id=path.name) for path in PICTURES])
def test_pictures_have_colours_for_dark_pages(picture) -> None:
    assert "@media (prefers-color-scheme: dark)" in picture.read_text()


@pytest.mark.parametrize("behind_a_link", [False, True])
def test_a_link_that_leaves_docs_leads_into_the_repository_where_there_is_one(
    tmp_path, behind_a_link
) -> None:
    root = ROOT
    if behind_a_link:
        root = tmp_path / "checkout"
        root.symlink_to(ROOT)
    sys.path.insert(0, str(DOCS))
    try:
        hooks = importlib.import_module("hooks")
    finally:
        sys.path.remove(str(DOCS))

    class Config:
        docs_dir, config_file_path, repo_url = (
            str(root / "docs"),
            str(root / "mkdocs.yml"),
            "https://example.org/o/outlast/",
        )

    class Source:
        class file:
            src_uri = "page.md"

    text = (
        '[`deploy`](../deploy/x.yaml#a "why") [in](in.md) `[code](../x)`\n```\n[fence](../x)\n```\n'
    )
    assert hooks.on_page_markdown(text, page=Source, config=Config, files=None) == (
        '[`deploy`](https://example.org/o/outlast/blob/HEAD/deploy/x.yaml#a "why") [in](in.md) `[code](../x)`\n'
        "```\n[fence](../x)\n```\n"
    )
    Config.repo_url = None
    assert hooks.on_page_markdown(text, page=Source, config=Config, files=None).startswith(
        '<span title="why">`deploy`</span> [in](in.md)'
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_it_is_in_a_sentence(module) -> None:
    public = importlib.import_module(module)
    kinds = [
        (name, getattr(public, name))
        for name in public.__all__
        if inspect.isclass(getattr(public, name)) or inspect.isroutine(getattr(public, name))
    ]
    assert [name for name, thing in kinds if len(own_docstring(thing)) < DOCSTRING_LENGTH_MIN] == []


def own_docstring(thing) -> str:
    """What a class inherits says nothing of it: `inspect.getdoc` would give asyncio's words for a loop of ours."""
    return (thing.__doc__ if inspect.isclass(thing) else inspect.getdoc(thing)) or ""


def test_every_module_that_a_page_imports_from_has_a_reference() -> None:
    """But for what stands behind the stores' addresses."""
    imported = {
        module
        for page in PAGES
        for module in re.findall(
            r"^\s*(?:from|import) (outlast[\w.]*)", page.read_text(), re.MULTILINE
        )
    }
    assert (
        sorted(one for one in imported - set(MODULES) if not one.startswith("outlast.store.")) == []
    )
