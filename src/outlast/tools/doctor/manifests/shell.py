"""Understand commands: what a shell in them is given, what it does, and how long they take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import dropwhile
from typing import NamedTuple

from outlast.cli.app import COMMANDS
from outlast.errors import SettingsError
from outlast.tools.doctor.host import SHELLS
from outlast.tools.doctor.manifests.values import seconds_of

WRAPPERS = {
    *("tini", "dumb-init", "catatonit", "env", "nice", "ionice", "setpriv", "gosu"),
    *("su-exec", "chpst", "stdbuf", "taskset", "numactl", "exec"),
}
"""Programs that replace themselves with a command, or forward signals only to it.

A shell behind one of them is still in front of the worker.
"""
SHORT = {
    *(":", "[", "cd", "echo", "exit", "export", "false", "kill", "printf", "set", "test"),
    *("touch", "true", "umask", "unset"),
}
"""Commands that take no time."""
_WITH_WORD = re.compile(r"[-+][abd-zA-Z]*[oO]|--rcfile|--init-file")
_PREFIX = re.compile(r"if|then|else|elif|do|while|until|\{|!|[A-Za-z_]\w*=.*", re.DOTALL)
"""Keywords and assignments in front of a command."""
_SEPARATORS = set(";&|()\n")


class Shell(NamedTuple):
    """A shell with a command line, or with a script file."""

    line: str | None
    script: str | None = None
    name: str = "sh"


class Command(NamedTuple):
    """What a manifest starts."""

    words: tuple[str, ...] = ()
    """In exec form, as far as the manifest has it."""
    shell: Shell | None = None
    arguments: tuple[str, ...] | None = None
    """Arguments of `outlast`. None if this manifest does not call it."""


class InFront(Enum):
    """What a shell does once it has started the worker."""

    NOTHING = "nothing"
    """The shell became the worker, by exec."""
    STAYS = "stays"
    BASH = "bash"
    """Bash 5.1 or newer becomes the last command of its line, unless that command is redirected."""
    TRAPS = "traps"
    """The shell stays and handles signals."""


def split(path: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise SettingsError(f"{path}: {text[:80]!r} cannot be read ({error}).") from None


def command_of(program: tuple[str, ...], args: tuple[str, ...], *, ours: bool = False) -> Command:
    """Return the command of an entry point and its arguments.

    Without a program, the image's entry point applies, which may be `outlast`. `ours` says that
    OUTLAST_ variables are set.
    """
    words = (*program, *args)
    shell = shell_in(words)
    if shell is not None and shell.line is not None:
        return Command(words, shell, shell_command(shell.line).arguments)
    arguments = _arguments(words)
    # Other programs have a `worker` command too, but none that takes a Python file.
    if arguments is None and not program and args and args[0] in COMMANDS:
        has_file = any(word.partition(":")[0].endswith(".py") for word in args[1:])
        arguments = args if ours or (args[0] == "worker" and has_file) else None
    return Command(words, shell, arguments)


def shell_command(line: str) -> Command:
    """Return the command of a line that is given to a shell."""
    called = (_arguments(one.words) for one in _commands(line))
    return Command((), Shell(line), next((one for one in called if one is not None), None))


def shell_in(words: Sequence[str]) -> Shell | None:
    """Return the shell that these words start, also behind a wrapper. None if there is no shell."""
    if words and _name(words[0]) in WRAPPERS:
        words = list(dropwhile(lambda word: _name(word) not in SHELLS, words))
    if words and _name(words[0]) == "busybox":
        words = words[1:]
    if not words:
        return None
    name = _name(words[0])
    if name not in SHELLS:
        return Shell(None, words[0]) if name.endswith(".sh") else None
    rest = iter(words[1:])
    for word in rest:
        if _WITH_WORD.fullmatch(word):
            next(rest, None)
        elif word.startswith("-") and not word.startswith("--") and "c" in word:
            line = next((one for one in rest if not one.startswith(("-", "+"))), "")
            return Shell(line, None, name)
        elif not word.startswith(("-", "+")):
            return Shell(None, word, name)
    return Shell("", None, name)


def in_front(line: str, shell: str = "sh") -> InFront:
    """Return whether a shell with this line stays in front of the worker.

    The commands that call `outlast` decide. If there are none, the last command decides.
    """
    commands = _commands(line)
    if any(one.words[0] == "trap" for one in commands):
        return InFront.TRAPS
    mine = [one for one in commands if _arguments(one.words) is not None] or commands[-1:]
    if not mine or not all(one.is_alone for one in mine):
        return InFront.STAYS
    if all(one.is_exec for one in mine):
        return InFront.NOTHING
    last = commands[-1]
    is_last = mine == [last] and last.after == "\n" and not _redirects(last.words)
    return InFront.BASH if shell == "bash" and is_last else InFront.STAYS


def command_seconds(command: Sequence[str]) -> float | None:
    """Return the longest time a preStop command may take. None if it cannot be told.

    Sleeps and commands with a time-out are added up.
    """
    words = [word for word in command if word]
    shell = shell_in(words)
    if shell is None:
        return _seconds(words)
    if shell.line is None:
        return None
    return _sum(_seconds(one.words) for one in _commands(shell.line))


def _seconds(words: Sequence[str]) -> float | None:
    if words and words[0] == "exec":
        words = words[1:]
    if not words or _name(words[0]) in SHORT:
        return 0.0
    name = _name(words[0])
    rest = [word for word in words[1:] if not word.startswith("-")]
    if name == "sleep":
        return _sum(map(seconds_of, rest)) if rest else None
    if name == "timeout":
        return seconds_of(rest[0]) if rest and not words[1].startswith("-") else None
    for place, word in enumerate(words):
        option, mark, value = word.partition("=")
        if option in ("--timeout", "--max-time"):
            return seconds_of(value if mark else "".join(words[place + 1 : place + 2]))
    # `outlast drain` without --wait requests a drain and does not wait for it.
    return 5.0 if "drain" in words and "--wait" not in words else None


def _sum(seconds: Iterable[float | None]) -> float | None:
    found = list(seconds)
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _redirects(words: Sequence[str]) -> bool:
    return any(set(word) & set("<>") for word in words)


def _arguments(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return what follows `outlast` in these words, or None.

    It may be the program itself, an argument of a runner, or a Python module.
    """
    for place, word in enumerate(words):
        if word == "outlast" or word.endswith("/outlast" if place == 0 else "/bin/outlast"):
            return tuple(words[place + 1 :])
    return None


class _Simple(NamedTuple):
    """A simple command of a shell line, with the separators before and after it."""

    words: tuple[str, ...]
    before: str
    after: str

    @property
    def is_alone(self) -> bool:
        """Return whether it runs in no pipe, no subshell and not in the background."""
        before = self.before.replace("||", "")
        after = self.after.replace("||", "").replace("&&", "")
        return not set(before) & set("|(") and not set(after) & set("|&")

    @property
    def is_exec(self) -> bool:
        """Return whether the shell becomes this command. `exec 2>&1` only redirects."""
        return self.words[0] == "exec" and len(self.words) > 1 and not _redirects(self.words[1:2])


def _commands(line: str) -> list[_Simple]:
    """Split a shell line into its simple commands, without comments, keywords and assignments."""
    found: list[_Simple] = []
    words: list[str] = []
    before = ""
    comment = False
    for token in [*_tokens(line), "\n"]:
        if not set(token) <= _SEPARATORS:
            comment = comment or token.startswith("#")
            words += [] if comment else [token]
        elif not comment or "\n" in token:
            comment = False
            if plain := tuple(dropwhile(_PREFIX.fullmatch, words)):
                found.append(_Simple(plain, before, token))
            before = token
            words = []
    return found


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    # A quotation is not closed.
    except ValueError:
        return line.split()
