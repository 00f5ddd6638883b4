"""The site, built strictly: nothing leads nowhere, nothing comes from outside, and it says what GitHub says."""

from __future__ import annotations

import fcntl
import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_pages import DOCS, PAGES, ROOT, headings, name, prose, slug

MODULES = {
    "outlast": "reference-outlast",
    "outlast.sync": "reference-sync",
    "outlast.effects": "reference-effects",
    "outlast.fencing": "reference-fencing",
    "outlast.http": "reference-http",
    "outlast.logs": "reference-logs",
    "outlast.settings": "reference-settings",
    "outlast.testing": "reference-testing",
    "outlast.testing.conformance": "reference-testing",
    "outlast.testing.servers": "reference-testing",
}
DOCSTRING_LENGTH_MIN = 30
WITH_ADDRESS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NO_RESOURCE = {"canonical", "next", "prev", "edit"}  # kinds of <link> that a browser does not load


class Page(HTMLParser):
    """What the tests ask of a built page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.of_headings: list[str] = []
        self.resources: list[str] = []
        self.paragraphs: list[str] = []
        self.codes: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = dict(attrs)
        if "id" in given:
            self.ids.append(given["id"])
            if re.fullmatch(r"h[1-6]", tag):
                self.of_headings.append(given["id"])
        if tag in WITH_ADDRESS and not NO_RESOURCE & set((given.get("rel") or "").split()):
            self.resources.append(given.get(WITH_ADDRESS[tag]) or "")
        if tag in {"p", "code"}:
            self._open.append(tag)
            (self.paragraphs if tag == "p" else self.codes).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if "p" in self._open:
            self.paragraphs[-1] += data
        if "code" in self._open:
            self.codes[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory, worker_id) -> Path:
    """Built once, also where several processes test, and also where that fails."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    folder, outcome = shared / "site", shared / "site.outcome"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not outcome.exists():
            outcome.write_text("it was begun")
            build(folder)
            outcome.write_text("built")
    assert outcome.read_text() == "built", "the strict build of the site failed: another test says how"
    return folder


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> None:
    """As `make docs` does; not with --quiet, which makes --strict pass whatever there is to warn of."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def built(site: Path) -> dict[str, Page]:
    return {path.stem: Page(path.read_text()) for path in sorted(site.glob("*.html"))}


def test_what_leads_nowhere_ends_the_build(tmp_path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    faults = "[a](nowhere.md) [b](index.md#nowhere) ![c](nowhere.svg) [d](/index.md)"
    (docs / "index.md").write_text(f"# Home\n\n{faults}\n")
    config = {
        "INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(docs), "hooks": [], "plugins": [], "nav": ["index.md"],
    }  # fmt: skip
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    with pytest.raises(AssertionError, match="WARNING") as failed:
        build(tmp_path / "site", tmp_path / "mkdocs.yml")
    told = str(failed.value).partition("\nassert")[0]
    assert [
        part for part in ("nowhere.md", "#nowhere", "nowhere.svg", "/index.md") if f"{part}'" not in told
    ] == []


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


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site) -> None:
    pages = built(site)
    assert {page.stem for page in DOCS.glob("*.md")} <= set(pages)
    for page in pages.values():
        assert page.resources
        assert [one for one in page.resources if re.match(r"(?:\w+:)?//", one)] == []
    assert not any("fonts.g" in path.read_text() for path in [*site.glob("*.html"), *site.rglob("*.css")])


def test_an_anchor_of_github_is_one_of_the_site(site) -> None:
    for path in DOCS.glob("*.md"):
        ids = built_page(site, path.stem).of_headings
        assert [slug(one) for one in headings(path) if slug(one) not in ids] == [], path.name


def built_page(site: Path, stem: str) -> Page:
    return Page((site / f"{stem}.html").read_text())


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in PAGES])
def test_no_heading_is_twice_on_a_page(page) -> None:
    """GitHub and the site number the second one each in its own way."""
    slugs = [slug(heading) for heading in headings(page)]
    assert sorted({one for one in slugs if slugs.count(one) > 1}) == []


def test_what_is_written_as_a_list_or_a_table_is_one(site) -> None:
    for stem, page in built(site).items():
        assert [
            text
            for text in page.paragraphs
            if re.search(r"^\s*(?:[-*|] |\d+\. |#+ |```)", text, re.MULTILINE)
        ] == [], stem
        assert [code for code in page.codes if "\\|" in code] == [], stem


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


def test_a_link_that_leaves_docs_is_words_with_its_path(site) -> None:
    outside = sum(len(re.findall(r"\]\(\.\./", prose(path))) for path in DOCS.glob("*.md"))
    pages = [path.read_text() for path in site.glob("*.html")]
    assert outside > 50
    assert sum(len(re.findall(r'<span title="[^"]+">', html)) for html in pages) >= outside
    assert not any('href="../' in html for html in pages)


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

    text = '[`deploy`](../deploy/x.yaml#a "why") [in](in.md) `[code](../x)`\n```\n[fence](../x)\n```\n'
    assert hooks.on_page_markdown(text, page=Source, config=Config, files=None) == (
        '[`deploy`](https://example.org/o/outlast/blob/HEAD/deploy/x.yaml#a "why") [in](in.md) `[code](../x)`\n'
        "```\n[fence](../x)\n```\n"
    )
    Config.repo_url = None
    assert hooks.on_page_markdown(text, page=Source, config=Config, files=None).startswith(
        '<span title="why">`deploy`</span> [in](in.md)'
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(site, module) -> None:
    ids = {one for page in set(MODULES.values()) for one in built_page(site, page).ids}
    public = importlib.import_module(module)
    assert [name for name in public.__all__ if not ids & anchors(module, name)] == []


def anchors(module: str, name: str) -> set[str]:
    """By its name there; by the one where it is defined, if a module has its name; what `outlast.sync` only hands on, in `outlast`."""
    thing = getattr(importlib.import_module(module), name)
    at_home = f"{getattr(thing, '__module__', module)}.{name}"
    handed_on = module == "outlast.sync" and getattr(importlib.import_module("outlast"), name) is thing
    return {f"{module}.{name}", at_home} | ({f"outlast.{name}"} if handed_on else set())


@pytest.mark.parametrize("module", ["outlast", "outlast.sync"])
def test_every_method_is_in_the_reference_also_one_that_is_inherited_or_made(site, module) -> None:
    """Under its class; one that is made from that of `outlast` may be named by the class instead."""
    ids = built_page(site, MODULES[module]).ids
    public, core = importlib.import_module(module), importlib.import_module("outlast")
    methods = [
        (thing, method)
        for name, thing in inspect.getmembers(public, inspect.isclass)
        if name in public.__all__ and (public is core or thing is not getattr(core, name))
        for method, fn in inspect.getmembers(thing, inspect.isfunction)
        if not method.startswith("_") and fn.__doc__
    ]
    assert len(methods) > 50
    assert [
        f"{thing.__name__}.{method}"
        for thing, method in methods
        if f"{module}.{thing.__name__}.{method}" not in ids and f"`{method}`" not in thing.__doc__
    ] == []


def test_a_list_of_a_docstring_has_one_thing_an_item(site) -> None:
    for stem in set(MODULES.values()):
        assert re.findall(r". - <code>[^<]*</code>:", (site / f"{stem}.html").read_text()) == [], stem


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
        for module in re.findall(r"^\s*(?:from|import) (outlast[\w.]*)", page.read_text(), re.MULTILINE)
    }
    assert sorted(one for one in imported - set(MODULES) if not one.startswith("outlast.store.")) == []
