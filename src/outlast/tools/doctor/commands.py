"""Parse command lines of shells.

This tells what a shell is given, whether it stays in front of the worker, and how long a command
takes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from outlast.cli.app import COMMANDS
from outlast.tools.doctor.workload import SHELLS, seconds_of

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
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "{", "!"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SEPARATORS = ";&|()\n"


class InFront(Enum):
    """What a shell does once it has started the worker."""

    NOTHING = "nothing"
    """The shell became the worker, by exec."""
    STAYS = "stays"
    BASH = "bash"
    """Bash 5.1 or newer becomes the last command of its line, unless that command is redirected."""
    TRAPS = "traps"
    """The shell stays and handles signals."""


class Shell(NamedTuple):
    """A shell with a command line, or with a script file."""

    line: str | None
    script: str | None = None
    name: str = "sh"


def name_of(word: str) -> str:
    return word.rpartition("/")[2]


def shell_in(words: Sequence[str]) -> Shell | None:
    """Return the shell that these words start, also behind a wrapper. None if there is no shell."""
    start = 0
    if words and name_of(words[0]) in WRAPPERS:
        start = next(
            (place for place, word in enumerate(words) if name_of(word) in SHELLS), len(words)
        )
    if start < len(words) and name_of(words[start]) == "busybox":
        start += 1
    if start >= len(words):
        return None
    if name_of(words[start]) not in SHELLS:
        return Shell(None, words[start]) if words[start].endswith(".sh") else None
    name = name_of(words[start])
    rest = iter(words[start + 1 :])
    for word in rest:
        if _WITH_WORD.fullmatch(word):
            next(rest, None)
        elif word.startswith("-") and not word.startswith("--") and "c" in word:
            line = next((one for one in rest if not one.startswith(("-", "+"))), "")
            return Shell(line, None, name)
        elif not word.startswith(("-", "+")):
            return Shell(None, word, name)
    return Shell("", None, name)


class _Simple(NamedTuple):
    """A simple command of a shell line, with the separators before and after it."""

    words: tuple[str, ...]
    before: str
    after: str


def _commands(line: str) -> list[_Simple]:
    try:
        tokens = _tokens(line)
    # A quotation is not closed: fall back to splitting at blanks.
    except ValueError:
        tokens = line.split()
    found: list[_Simple] = []
    words: list[str] = []
    before = ""
    comment = False
    for token in [*tokens, "\n"]:
        if not set(token) <= set(_SEPARATORS):
            comment = comment or token.startswith("#")
            if not comment:
                words.append(token)
            continue
        comment = comment and "\n" not in token
        if words and not comment:
            found.append(_Simple(tuple(words), before, token))
            words = []
        before = token
    return found


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _plain(words: Sequence[str]) -> tuple[str, ...]:
    """Remove leading keywords and variable assignments."""
    place = 0
    while place < len(words) and (words[place] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[place])):
        place += 1
    return tuple(words[place:])


def in_front(line: str, shell: str = "sh") -> InFront:
    """Return whether a shell with this line stays in front of the worker.

    The commands that call `outlast` decide. If there are none, the last command decides.
    """
    commands = [one for one in _commands(line) if _plain(one.words)]
    if any(_plain(one.words)[0] == "trap" for one in commands):
        return InFront.TRAPS
    mine = [one for one in commands if calls_outlast(_plain(one.words))] or commands[-1:]
    if mine and all(map(_becomes, mine)):
        return InFront.NOTHING
    last = shell == "bash" and mine == commands[-1:] and mine[0].after == "\n"
    plain = last and _is_alone(mine[0]) and not any(set(word) & set("<>") for word in mine[0].words)
    return InFront.BASH if plain else InFront.STAYS


def _is_alone(one: _Simple) -> bool:
    """Return whether the command runs in no pipe, no subshell and not in the background."""
    before = "|" not in one.before.replace("||", "") and "(" not in one.before
    return (
        before and "|" not in one.after.replace("||", "") and "&" not in one.after.replace("&&", "")
    )


def _becomes(one: _Simple) -> bool:
    words = _plain(one.words)
    return (
        _is_alone(one) and len(words) > 1 and words[0] == "exec" and not set(words[1]) & set("<>")
    )


def calls_outlast(words: Sequence[str]) -> bool:
    return _place(words) is not None


def _place(words: Sequence[str]) -> int | None:
    """Return the index of `outlast` in these words, or None.

    It may be the program itself, an argument of a runner, or a Python module.
    """
    for place, word in enumerate(words):
        if (
            (name_of(word) == "outlast" and place == 0)
            or word == "outlast"
            or word.endswith("/bin/outlast")
        ):
            return place
    return None


def outlast_words(command: Sequence[str] | None, shell: str | None) -> tuple[str, ...] | None:
    """Return the arguments of `outlast`. None if it is not called here."""
    lines = (
        [tuple(command or ())] if shell is None else [_plain(one.words) for one in _commands(shell)]
    )
    for words in lines:
        place = _place(words)
        if place is not None:
            return tuple(words[place + 1 :])
    return None


def called(program: tuple[str, ...], args: tuple[str, ...], *, ours: bool) -> dict[str, Any]:
    """Return the command as fields of a Workload, including what a shell in it is given.

    Without a program, the image's entry point applies, which may be `outlast`. `ours` says that
    OUTLAST_ variables are set.
    """
    words = (*program, *args)
    shell = shell_in(words)
    line, script, name = (None, None, "sh") if shell is None else shell
    asks = outlast_words(words, line)
    if asks is None and not program and _is_for_outlast(args, ours=ours):
        asks = args
    return {
        "command": words or None,
        "shell": line,
        "script": script,
        "shell_name": name,
        "asks": asks,
    }


def _is_for_outlast(args: Sequence[str], *, ours: bool) -> bool:
    """Return whether these are arguments of `outlast`.

    Other programs have a `worker` command too, but none that takes a Python file.
    """
    if not args or args[0] not in COMMANDS:
        return False
    return ours or (
        args[0] == "worker" and any(word.partition(":")[0].endswith(".py") for word in args[1:])
    )


def command_seconds(command: Sequence[str]) -> float | None:
    """Return the longest time a preStop command may take. None if it cannot be told.

    Sleeps and commands with a time-out are added up.
    """
    words = tuple(word for word in command if word)
    shell = shell_in(words)
    if shell is not None and shell.line is None:
        return None
    lines = (
        [words]
        if shell is None or shell.line is None
        else [one.words for one in _commands(shell.line)]
    )
    taken = [_seconds(_plain(one)) for one in lines]
    return None if None in taken else sum(one for one in taken if one is not None)


def _seconds(words: Sequence[str]) -> float | None:
    if words and words[0] == "exec":
        words = words[1:]
    if not words or name_of(words[0]) in SHORT:
        return 0.0
    name = name_of(words[0])
    rest = [word for word in words[1:] if not word.startswith("-")]
    if name == "sleep":
        lengths = [seconds_of(word) for word in rest]
        return (
            None if None in lengths or not rest else sum(one for one in lengths if one is not None)
        )
    if name == "timeout":
        return seconds_of(rest[0]) if rest and not words[1].startswith("-") else None
    for place, word in enumerate(words):
        option, mark, value = word.partition("=")
        if option in ("--timeout", "--max-time"):
            return seconds_of(
                value if mark else words[place + 1] if place + 1 < len(words) else None
            )
    if "drain" in words and "--wait" not in words:
        # The command requests a drain and does not wait for it.
        return 5.0
    return None
