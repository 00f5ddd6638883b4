"""Assemble the command line from its commands."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Annotated

import typer

import outlast
from outlast.cli import fleet, inspect, mutate
from outlast.cli.bench import bench
from outlast.cli.chaos import chaos_app
from outlast.cli.decide import decide
from outlast.cli.demo import demo
from outlast.cli.doctor import doctor
from outlast.cli.drain import drain
from outlast.cli.drains import drains
from outlast.cli.exit_codes import EPILOG
from outlast.cli.explain import explain
from outlast.cli.manifest import manifest
from outlast.cli.migrate import migrate
from outlast.cli.run import run
from outlast.cli.sessions import sessions
from outlast.cli.submit import submit
from outlast.cli.worker import worker

app = typer.Typer(
    name="outlast",
    help="Durable runs: execute them, look at them, steer them.",
    epilog=EPILOG,
    no_args_is_help=True,
    # Text from other sources is never markup, and help renders faster without rich.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outlast {outlast.__version__}")
        raise typer.Exit


@app.callback()
def outlast_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


for command in (
    run, submit, worker, inspect.runs, inspect.show, fleet.workers, fleet.queues, fleet.limit, drain, drains,
    mutate.cancel, mutate.retry, mutate.resume, decide, mutate.send, mutate.prune, sessions, migrate, doctor, bench, manifest,
    explain, demo,
):  # fmt: skip
    app.command(epilog=EPILOG)(command)
app.add_typer(chaos_app, name="chaos")


@cache
def command_line(first: str = "") -> Callable[..., object]:
    """Return the command line for the command that `first` names, or for all commands.

    Typer inspects the signature of every registered command. For all of them that takes longer than
    most commands run.
    """
    one = copy(app)
    one.registered_commands = [
        info for info in app.registered_commands if getattr(info.callback, "__name__", "") == first
    ]
    one.registered_groups = [info for info in app.registered_groups if info.name == first]
    return typer.main.get_command(one if one.registered_commands or one.registered_groups else app)
