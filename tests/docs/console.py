"""A session of a page, executed: commands after `$ `, below each what it prints, `…` for what varies.

One bash for a page, in a folder that is empty but for the page's own files, so that what a command leaves (a store, a job in the
background, a variable) is there for the next one. What a command prints comes through a pipe, without colour, 80 columns wide.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_pages import Block, fences

from support.output import matches
from support.waiting import WAIT_SECONDS

PROMPT = "$ "
COMMAND_SECONDS_MAX = WAIT_SECONDS
MARK = "outlast-session-mark"


class BadSession(Exception):
    """The page is not written as a session must be."""


@dataclass(frozen=True)
class Command:
    """What is typed, what the page says it prints, and the page's line."""

    text: str
    expected: str
    line: int


def commands(block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    if not lines or not lines[0].startswith(PROMPT):
        raise BadSession(f"line {block.line}: a console block begins with `{PROMPT}` and a command")
    at = 0
    while at < len(lines):
        line = block.line + 1 + at
        typed = [lines[at].removeprefix(PROMPT)]
        while typed[-1].endswith("\\") and at + 1 < len(lines):
            at += 1
            typed.append(lines[at])
        at += 1
        shown = at
        while at < len(lines) and not lines[at].startswith(PROMPT):
            at += 1
        yield Command("\n".join(typed), "\n".join(lines[shown:at]), line)


@dataclass
class Shell:
    """The bash of one page. `close` ends it and all that it left running."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.folder,
            env=environment_of_a_page(self.folder, self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._read = b""
        self._code = 0

    def execute(self, command: str) -> tuple[int, str]:
        """The command's code and what was printed until its end, by it and by what runs in the background."""
        self._bash.stdin.write(
            f"(exit {self._code}); eval {shlex.quote(command)} </dev/null; printf '\\n{MARK} %d\\n' $?\n".encode()
        )
        self._bash.stdin.flush()
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while not (found := re.search(rb"\n" + MARK.encode() + rb" (\d+)\n", self._read)):
            self._read += self._more(deadline, command)
        printed, self._read = self._read[: found.start()], self._read[found.end() :]
        self._code = int(found[1])
        return self._code, printed.decode()

    def _more(self, deadline: float, command: str) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise AssertionError(
                    f"`{command}` did not end within {COMMAND_SECONDS_MAX:g} s: {self._read.decode()}"
                )
        more = os.read(self._bash.stdout.fileno(), 65536)
        assert more, f"the shell ended by `{command}`: {self._read.decode()}"
        return more

    def close(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._bash.stdin.close()
        self._bash.stdout.close()


def environment_of_a_page(folder: Path, more: dict[str, str]) -> dict[str, str]:
    """Nothing of ours from outside; `python` and `outlast` are those that run the tests."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(("OUTLAST_", "PYTEST_"))
        and name not in {"DATABASE_URL", "REDIS_URL"}
    }
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}",
        "HOME": str(folder),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "80",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        **more,
    }


def run_page(page: Path, folder: Path, environment: dict[str, str]) -> int:
    """Write the titled files and execute the sessions, in the order of the page; how many commands there were."""
    shell, count = Shell(folder, environment), 0
    try:
        for block in fences(page):
            if block.title:
                write_file(block, folder)
            if block.language == "console":
                count += run_block(page, block, shell)
    finally:
        shell.close()
    return count


def write_file(block: Block, folder: Path) -> None:
    path = (folder / block.title).resolve()
    assert path.is_relative_to(folder.resolve()), f"{block.title} is not in the page's folder"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def run_block(page: Path, block: Block, shell: Shell) -> int:
    """A command that fails is a fault of the page, unless the next one is `echo $?`."""
    typed = list(commands(block))
    for command, after in zip(typed, [*typed[1:], None], strict=True):
        code, printed = shell.execute(command.text)
        place = f"{page.name}, line {command.line}: $ {command.text}"
        if not matches(command.expected, printed):
            raise AssertionError(
                f"{place}\n--- the page says\n{command.expected}\n--- it printed\n{printed}"
            )
        if code and not (after and after.text == "echo $?"):
            raise AssertionError(f"{place}\nended with {code}: show it by `$ echo $?`\n{printed}")
    return len(typed)
