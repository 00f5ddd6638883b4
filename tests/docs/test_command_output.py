"""Every command of ours that a page shows is taken by the real command line: it exists, and so do its options."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from markdown_pages import PAGES, ROOT, fences, name, prose

from outlast.cli.app import command_line
from outlast.cli.examples import EXAMPLES

LINE = re.compile(r"^[ >]*(?:\$ )?(?:[^|`\n]+\| )?(?P<command>outlast(?: .*)?)$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(?P<command>outlast [^`|\n]+)(?:\|[^`\n]*)?`(?!`)")
UsageError = typer.BadParameter.__mro__[1]  # of click, or of the one that typer carries
OF_OTHER_DAYS = {"CHANGELOG.md"}  # names in sentences what was
ALWAYS = {"-h", "--help"}
ENDS = {"|", "||", ">", ">>", "<", ";", "&", "&&"}


def words(line: str) -> list[str]:
    """Of the command alone: without a comment, and without what a shell does before and after it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;<>&")
    lexer.whitespace_split, lexer.commenters = True, ""
    taken: list[str] = []
    for word in lexer:
        if word in ENDS or (taken and word.startswith("#")):
            break
        taken.append(word)
    return taken[1:]


def harmless(command):
    """The same, but nothing happens while it is parsed: `--install-completion` writes into a home otherwise."""
    for parameter in command.params:
        parameter.callback = None
    for below in getattr(command, "commands", {}).values():
        harmless(below)
    return command


COMMAND = harmless(command_line())


def parse(args: list[str], command=COMMAND, above=None) -> None:
    """As a shell would call it, but for what the command then does."""
    context = command.make_context(command.name, list(args), parent=above)
    if hasattr(command, "resolve_command") and (given := [*context._protected_args, *context.args]):
        _, below, rest = command.resolve_command(context, given)
        parse(rest, below, context)


def fault(line: str) -> str:
    """What is wrong with it, as the command line says it."""
    try:
        parse(words(line))
    except typer.Exit as ended:  # --help
        return f"ends with {ended.exit_code}" if ended.exit_code else ""
    except UsageError as error:
        return error.format_message()
    return ""


def options(command) -> set[str]:
    """Its own, and those of the commands below it: a group may have a default."""
    own = {
        name for parameter in command.params for name in parameter.opts + parameter.secondary_opts
    }
    return own.union(*(options(below) for below in getattr(command, "commands", {}).values()))


def unknown(named: str) -> str:
    """What there is not in a command that is only named, as in `outlast drain [--wait] [--timeout N]`."""
    command, given = COMMAND, named.split()[1:]
    while given and given[0] in getattr(command, "commands", {}):
        command = command.commands[given.pop(0)]
    if command is COMMAND and not given[0].startswith("-"):
        return f"no such command: {given[0]}"
    known = options(command) | ALWAYS
    return " ".join(
        option for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", named) if option not in known
    )


def lines(page: Path) -> list[str]:
    """Of a session only what is typed in it; what it prints may begin with our name too.

    A command that continues on the next line is one line.
    """
    blocks = [block.text for block in fences(page)]
    for at, block in enumerate(fences(page)):
        if block.language in {"console", "markdown"}:
            blocks[at] = "".join(re.findall(r"^\$ .*\n", block.text, re.MULTILINE))
    text = re.sub(r"\\\n\s*", "", "\n".join([prose(page), *blocks]))
    return [found["command"] for found in LINE.finditer(text)]


def named_in_sentences(page: Path) -> list[str]:
    return [found["command"] for found in INLINE.finditer(page.read_text())]


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page)) for page in PAGES if lines(page)]
)
def test_every_line_with_a_command_is_one_that_the_command_line_takes(page) -> None:
    assert {line: what for line in lines(page) if (what := fault(line))} == {}


def test_every_example_of_the_help_is_one_that_the_command_line_takes() -> None:
    shown = [line for text in EXAMPLES.values() for line in text.splitlines()]
    commands = [found["command"] for line in shown for found in [LINE.search(line)] if found]
    assert len(commands) >= len(shown) - 1  # the token of `outlast serve`
    assert {line: what for line in commands if (what := fault(line))} == {}


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in PAGES])
def test_every_command_named_in_a_sentence_exists_with_its_options(page) -> None:
    if name(page) not in OF_OTHER_DAYS:
        assert {one: what for one in named_in_sentences(page) if (what := unknown(one))} == {}


@pytest.mark.parametrize(
    "line", ["outlast nosuch", "outlast runs --nosuch", "outlast chaos nosuch --x", "outlast show", "outlast runs --status nosuch"]
)  # fmt: skip
def test_a_command_that_there_is_not_is_found(line) -> None:
    assert fault(line)


@pytest.mark.parametrize(
    "named", ["outlast nosuch", "outlast runs [--nosuch]", "outlast runs --wait"]
)
def test_what_is_named_and_is_not_there_is_found(named) -> None:
    assert unknown(named)


def test_what_a_shell_does_is_no_argument() -> None:
    line = "outlast decide trip-7 book#2 --happened '\"hotel | 17\"'  # it did | really"
    assert words(line) == ["decide", "trip-7", "book#2", "--happened", '"hotel | 17"']
    assert words("outlast migrate --sql | psql -v X=1") == ["migrate", "--sql"]
    assert words("outlast worker agent.py > log 2>&1 &")[:2] == ["worker", "agent.py"]


def test_every_extra_that_a_page_installs_exists() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    named = {
        extra.strip()
        for page in PAGES
        for group in re.findall(r"\boutlast\[([\w, -]+)\]", page.read_text())
        for extra in group.split(",")
    }
    assert named
    assert sorted(named - extras) == []
