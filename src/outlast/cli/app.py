"""Assemble the command line from its commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated

import typer

from outlast.cli.exit_codes import MEANINGS
from outlast.cli.help import EPILOG, Command, Root
from outlast.version import __version__

PARTS = {
    "Execute work": {
        "run": "outlast.cli.run",
        "submit": "outlast.cli.submit",
        "worker": "outlast.cli.worker",
        "serve": "outlast.cli.serve",
    },
    "Look at runs": {
        "runs": "outlast.cli.inspect",
        "show": "outlast.cli.inspect",
        "watch": "outlast.cli.follow",
        "ui": "outlast.cli.ui",
        "sessions": "outlast.cli.sessions",
    },
    "Act on runs": {
        "send": "outlast.cli.mutate",
        "cancel": "outlast.cli.mutate",
        "retry": "outlast.cli.mutate",
        "resume": "outlast.cli.mutate",
        "decide": "outlast.cli.decide",
        "bulk": "outlast.cli.bulk_actions",
    },
    "Look at the fleet": {
        "workers": "outlast.cli.fleet",
        "queues": "outlast.cli.fleet",
        "drains": "outlast.cli.drains",
        "limiters": "outlast.cli.limiters",
        "budgets": "outlast.cli.budgets",
        "schedules": "outlast.cli.schedules",
        "workflows": "outlast.cli.workflows",
    },
    "Act on the fleet": {
        "drain": "outlast.cli.drain",
        "limit": "outlast.cli.fleet",
        "schedule": "outlast.cli.schedules",
        "workflow": "outlast.cli.workflows",
    },
    "Deploy and maintain": {
        "doctor": "outlast.tools.doctor.command",
        "manifest": "outlast.tools.deploy.command",
        "migrate": "outlast.cli.migrate",
        "prune": "outlast.cli.mutate",
        "bench": "outlast.tools.bench.command",
        "chaos": "outlast.tools.chaos.command",
    },
    "Learn": {
        "demo": "outlast.tools.demo.command",
        "explain": "outlast.cli.explain",
    },
}
COMMANDS = {name: module for part in PARTS.values() for name, module in part.items()}
"""The module of each command, in the order of `outlast --help`.

A module holds a function or a `typer.Typer` with the name of its command. It is imported when the
command is named, so a worker never loads `outlast.tools`.
"""


# Typer re-wraps a paragraph unless it begins with \b.
_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outlast {__version__}")
        raise typer.Exit


def outlast_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@cache
def command_line(first: str = "") -> Callable[..., object]:
    """Return the command line with the command that `first` names, or with all commands.

    Importing all commands takes longer than most of them run.
    """
    app = typer.Typer(
        name="outlast",
        cls=Root,
        help="Execute, inspect and control durable runs.",
        epilog=_EXIT_CODES,
        no_args_is_help=True,
        # Text from other sources is never markup, and help renders faster without rich.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(outlast_command)
    for name in [first] if first in COMMANDS else COMMANDS:
        command = getattr(import_module(COMMANDS[name]), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(cls=Command, epilog=EPILOG)(command)
    group = typer.main.get_command(app)
    assert isinstance(group, Root)
    group.parts = PARTS
    # Typer puts commands with subcommands last.
    group.commands = {name: group.commands[name] for name in COMMANDS if name in group.commands}
    return group
