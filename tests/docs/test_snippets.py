"""Every snippet of the pages runs, each in a process of its own and an empty folder."""

import os
import re
import sys
from pathlib import Path

import pytest
from console import write_file
from markdown_pages import DOCS, PAGES, ROOT, Block, fences, headings, name, prose, slug

from support.spawned import spawn
from support.waiting import WAIT_SECONDS

SERVERS = {
    "DATABASE_URL": "postgres_server",
    "REDIS_URL": "redis_server",
}  # for snippets that ask for one


def programs(page: Path) -> list[Block]:
    return [block for block in fences(page) if block.language == "python"]


def is_executed_elsewhere(page: Path, block: Block) -> bool:
    """By a session of its page (test_console.py); the README's program, to its end, as the first example (tests/examples)."""
    typed = "".join(one.text for one in fences(page) if one.language == "console")
    return page == ROOT / "README.md" or bool(block.title and f"$ python {block.title}\n" in typed)


def snippets() -> list:
    return [
        pytest.param(page, block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(programs(page), 1)
        if not is_executed_elsewhere(page, block)
    ]


@pytest.mark.parametrize(("page", "block"), snippets())
def test_a_snippet_runs_as_it_stands(
    page: Path, block: Block, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Beside the files that the page has shown before it."""
    for shown in fences(page):
        if shown.title and shown.line < block.line:
            write_file(shown, tmp_path)
    servers = {
        name: request.getfixturevalue(fixture).url
        for name, fixture in SERVERS.items()
        if name in block.text
    }
    program = tmp_path / (block.title or "snippet.py")
    program.write_text(block.text)
    code, said = executed(program, {**os.environ, **servers})
    assert code == 0, said


def executed(program: Path, env: dict[str, str]) -> tuple[int, str]:
    """Its exit code, and what it said on stderr."""
    said = program.with_suffix(".stderr")
    with said.open("w") as err, Path(os.devnull).open("w") as null:
        command = [sys.executable, "-W", "error", program]
        process = spawn(command, cwd=program.parent, env=env, stdout=null, stderr=err)
    try:
        return process.wait(WAIT_SECONDS), said.read_text()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("import sys\nsys.exit(3)", 3, ""),
        ("raise KeyError('missing')", 1, "KeyError: 'missing'"),
        ("import warnings\nwarnings.warn('old')", 1, "UserWarning: old"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", -15, ""),
    ],
)
def test_a_snippet_that_does_not_run_is_told(
    tmp_path: Path, text: str, code: int, words: str
) -> None:
    (tmp_path / "snippet.py").write_text(text)
    found, said = executed(tmp_path / "snippet.py", dict(os.environ))
    assert found == code
    assert words in said


def test_no_snippet_is_overlooked() -> None:
    """However its fence is written: with a title, in a list, of another length.

    The fences of the reference are signatures and excerpts of docstrings.
    """
    for page in PAGES:
        if page.name.startswith("reference-"):
            continue
        outer = [block.text for block in fences(page) if block.language == "markdown"]
        shown = sum(len(re.findall(r"^\s*```+ *py", text, re.MULTILINE)) for text in outer)
        written = len(re.findall(r"^\s*(?:```+|~~~+) *py", page.read_text(), re.MULTILINE))
        assert len(programs(page)) == written - shown, name(page)


LINK = re.compile(r"\]\((?P<target>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?(?: \"[^\"]*\")?\)")


def links(page: Path) -> list[tuple[Path, str]]:
    """Those within the repository: the file, and the anchor in it."""
    found = LINK.finditer(prose(page))
    return [
        ((page.parent / link["target"]) if link["target"] else page, link["anchor"] or "")
        for link in found
    ]


def test_every_relative_link_leads_somewhere() -> None:
    gone = [
        f"{name(page)} links to {target}"
        for page in PAGES
        for target, _ in links(page)
        if not target.exists()
    ]
    assert gone == []


def test_every_heading_that_is_linked_to_is_there() -> None:
    for page in PAGES:
        for target, anchor in links(page):
            if anchor and target.suffix == ".md":
                assert anchor in {slug(one) for one in headings(target)}, (
                    f"{name(page)}: {target.name}#{anchor}"
                )


def test_every_setting_and_exit_code_is_documented() -> None:
    from dataclasses import fields

    from outlast.cli import exit_codes
    from outlast.settings import Settings

    limits, commands = (DOCS / "limits.md").read_text(), (DOCS / "commands.md").read_text()
    assert [
        f.name for f in fields(Settings) if f.name != "store" and f"`{f.name}`" not in limits
    ] == []
    assert [
        code
        for code, meaning in exit_codes.MEANINGS.items()
        if f"| {code} | {meaning} |" not in commands
    ] == []
