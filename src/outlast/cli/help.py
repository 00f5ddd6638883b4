"""Lay out `--help`: what a command does, examples, details, options."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from outlast.cli.examples import EXAMPLES

EPILOG = "`outlast --help` lists the exit codes."
"""The last line of the help of every command but `outlast` itself."""

_TYPES = [
    (re.compile(r"<(?:int|float)(?: range)?>"), "N"),
    (re.compile(r"<str>"), "TEXT"),
    (re.compile(r"<([\w|]+)>"), r"\1"),
]
_BRACKETS = re.compile(r"  \[([^\]]+)\]$")
_NOISE = re.compile(r"x[<>]=|^default: 0(\.0)?$")


def _name(text: str) -> str:
    """Replace Typer's names of types with metavars."""
    for pattern, metavar in _TYPES:
        text = pattern.sub(metavar, text)
    return text


def _description(text: str) -> str:
    """Leave ranges out, which the errors name, and defaults that say nothing."""
    brackets = _BRACKETS.search(text)
    if brackets is None:
        return text
    facts = [fact.removesuffix(".0") for fact in brackets[1].split("; ") if not _NOISE.search(fact)]
    return text[: brackets.start()] + (f"  [{', '.join(facts)}]" if facts else "")


class _Layout:
    """Change how a command of Typer prints its help."""

    help: str | None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        summary, _, details = inspect.cleandoc(self.help or "").partition("\n\n")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(summary)
        if examples := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for line in examples.splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        if details:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(details)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, options = [], []
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            name, text = record
            if parameter.param_type_name == "argument":
                text = text.removesuffix("  [required]")
                arguments.append((parameter.metavar or name, text))
            else:
                options.append((_name(name), _description(text)))
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


class Command(_Layout, TyperCommand):
    """Print the help of one command, and refuse `--server` where it cannot be used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = any("--server" in parameter.opts for parameter in self.params)
        if not known and any(one.partition("=")[0] == "--server" for one in args):
            raise typer.BadParameter(
                f"`{ctx.command_path}` executes runs or works on the store itself, so it cannot "
                "use a server. Use --store where the store can be opened.",
                ctx,
                param_hint="--server",
            )
        return super().parse_args(ctx, args)


class Group(_Layout, TyperGroup):
    """Print the help of commands below a name, such as `outlast schedule`."""


class Root(Group):
    """Print the help of `outlast` itself, which groups its commands by purpose."""

    parts: dict[str, dict[str, str]]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        width = formatter.width - 6 - max(map(len, self.commands))
        for heading, names in self.parts.items():
            rows = [
                (name, self.commands[name].get_short_help_str(width))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
