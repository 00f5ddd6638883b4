"""Every console session of a page is executed as it stands, and what executes them can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import BadSession, run_page
from markdown_pages import PAGES, fences, name

from support.output import matches
from support.processes import wait_until_gone
from support.shared import FULL

SERVERS = {
    "DATABASE_URL": "postgres_server",
    "REDIS_URL": "redis_server",
}  # for sessions that ask for one


KILLS_AFTER_SECONDS = {"docs/quickstart.md"}
"""Pages that kill a program some seconds after its start. test_quickstart.py ends these programs at the same
moments, however fast the machine is; `make stores` also types what the page shows."""


def sessions() -> list:
    return [
        pytest.param(page, id=name(page))
        for page in PAGES
        if any(block.language == "console" for block in fences(page))
        and (FULL or name(page) not in KILLS_AFTER_SECONDS)
    ]


@pytest.mark.parametrize("page", sessions())
def test_the_sessions_of_a_page_are_as_it_shows_them(page, tmp_path, request) -> None:
    text = "".join(block.text for block in fences(page) if block.language == "console")
    servers = {
        variable: request.getfixturevalue(fixture).url
        for variable, fixture in SERVERS.items()
        if variable in text
    }
    assert run_page(page, tmp_path, servers) > 0


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def run(tmp_path: Path, text: str) -> int:
    folder = tmp_path / "folder"
    folder.mkdir()
    return run_page(page(tmp_path, text), folder, {})


def test_a_session_has_the_files_of_the_page_and_what_the_commands_before_it_left(tmp_path) -> None:
    text = """
```python title="hello.py"
print("one\\n\\ntwo")
```

```console
$ python hello.py
one

two
$ python hello.py > said.txt
$ export WORD=three
```

```python title="hello.py"
print("changed")
```

```console
$ echo $WORD; tail -n 1 said.txt
three
two
$ python \\
    hello.py
changed
```
"""
    assert run(tmp_path, text) == 5


def test_a_job_in_the_background_can_be_killed_and_its_code_shown(tmp_path) -> None:
    text = "```console\n$ sleep 600 &\n$ kill -9 %1\n$ wait $!\n…\n$ echo $?\n137\n```\n"
    assert run(tmp_path, text) == 4


@pytest.mark.parametrize(
    "session",
    [
        "$ echo one\ntwo",
        "$ echo one",
        "$ true\nsomething",
        "$ false",
        "$ exit 3",
        "$ echo $HOME\n/root",
    ],
)
def test_a_session_that_is_not_so_is_a_failure(tmp_path, session) -> None:
    with pytest.raises(AssertionError):
        run(tmp_path, f"```console\n{session}\n```\n")


def test_a_console_block_without_a_prompt_is_refused(tmp_path) -> None:
    with pytest.raises(BadSession, match="line 2"):
        run(tmp_path, "\n```console\necho one\n```\n")


def test_nothing_is_left_running(tmp_path) -> None:
    run(tmp_path, "```console\n$ sleep 600 & echo $! > pid\n```\n")
    left = int((tmp_path / "folder/pid").read_text())
    wait_until_gone(left)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a … c", "a b c", True),
        ("a … c", "a b\nc", False),
        ("a\n…\nc", "a\nc", True),
        ("a\n…\nc", "a\nb\nb\nc", True),
        ("…", "", True),
        ("", "", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
        ("a", "a  \n\n", True),
        ("ID   AGE\nx  … ms", "ID    AGE\nx   1 ms", True),
        ("a b", "ab", False),
        ("a\n\nb", "a\nb", False),
    ],
)  # fmt: skip
def test_ellipsis_stands_for_output_that_varies(expected, printed, same) -> None:
    assert matches(expected, printed) is same
