"""The site, built strictly: no link is broken, nothing is loaded from elsewhere.

`make stores` builds it. In `make test` the links and the navigation are checked without a build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_pages import DOCS, ROOT, headings, prose, slug

from support.shared import make_once
from support.waiting import WAIT_SECONDS

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


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site, built once per test run."""
    return make_once(tmp_path_factory, "site", lambda folder: build(folder / "built")) / "built"


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> None:
    """As `make docs` does; not with --quiet, which makes --strict pass whatever there is to warn of."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            config,
            "--site-dir",
            folder,
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def built(site: Path) -> dict[str, Page]:
    return {path.stem: Page(path.read_text()) for path in sorted(site.glob("*.html"))}


def test_broken_links_fail_the_build(tmp_path) -> None:
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
        part
        for part in ("nowhere.md", "#nowhere", "nowhere.svg", "/index.md")
        if f"{part}'" not in told
    ] == []


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site) -> None:
    pages = built(site)
    assert {page.stem for page in DOCS.glob("*.md")} <= set(pages)
    for page in pages.values():
        assert page.resources
        assert [one for one in page.resources if re.match(r"(?:\w+:)?//", one)] == []
    assert not any(
        "fonts.g" in path.read_text() for path in [*site.glob("*.html"), *site.rglob("*.css")]
    )


def test_github_anchors_exist_on_the_site(site) -> None:
    for path in DOCS.glob("*.md"):
        ids = built_page(site, path.stem).of_headings
        assert [slug(one) for one in headings(path) if slug(one) not in ids] == [], path.name


def built_page(site: Path, stem: str) -> Page:
    return Page((site / f"{stem}.html").read_text())


def test_lists_and_tables_are_rendered(site) -> None:
    for stem, page in built(site).items():
        assert [
            text
            for text in page.paragraphs
            if re.search(r"^\s*(?:[-*|] |\d+\. |#+ |```)", text, re.MULTILINE)
        ] == [], stem
        assert [code for code in page.codes if "\\|" in code] == [], stem


def test_links_outside_docs_become_text(site) -> None:
    outside = sum(len(re.findall(r"\]\(\.\./", prose(path))) for path in DOCS.glob("*.md"))
    pages = [path.read_text() for path in site.glob("*.html")]
    assert outside > 50
    assert sum(len(re.findall(r'<span title="[^"]+">', html)) for html in pages) >= outside
    assert not any('href="../' in html for html in pages)
