"""Assemble the command line from its commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated

import typer
from typer.core import TyperGroup

from outlast.cli.exit_codes import EPILOG
from outlast.version import __version__

COMMANDS = {
    "run": "outlast.cli.run",
    "submit": "outlast.cli.submit",
    "worker": "outlast.cli.worker",
    "serve": "outlast.cli.serve",
    "runs": "outlast.cli.inspect",
    "show": "outlast.cli.inspect",
    "watch": "outlast.cli.follow",
    "workers": "outlast.cli.fleet",
    "queues": "outlast.cli.fleet",
    "limit": "outlast.cli.fleet",
    "schedules": "outlast.cli.schedules",
    "schedule": "outlast.cli.schedules",
    "drain": "outlast.cli.drain",
    "drains": "outlast.cli.drains",
    "cancel": "outlast.cli.mutate",
    "retry": "outlast.cli.mutate",
    "resume": "outlast.cli.mutate",
    "decide": "outlast.cli.decide",
    "send": "outlast.cli.mutate",
    "prune": "outlast.cli.mutate",
    "bulk": "outlast.cli.bulk_actions",
    "sessions": "outlast.cli.sessions",
    "migrate": "outlast.cli.migrate",
    "doctor": "outlast.tools.doctor.command",
    "bench": "outlast.tools.bench.command",
    "manifest": "outlast.tools.deploy.command",
    "explain": "outlast.cli.explain",
    "demo": "outlast.tools.demo.command",
    "chaos": "outlast.tools.chaos.command",
}
"""The module of each command, in the order of `outlast --help`.

A module holds a function or a `typer.Typer` with the name of its command. It is imported when the
command is named, so a worker never loads `outlast.tools`.
"""


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
        help="Execute, inspect and control durable runs.",
        epilog=EPILOG,
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
            app.command(epilog=EPILOG)(command)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    # Typer puts commands with subcommands last.
    group.commands = {name: group.commands[name] for name in COMMANDS if name in group.commands}
    return group
