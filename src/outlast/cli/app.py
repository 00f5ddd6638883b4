"""The commands, put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer

import outlast
from outlast.cli import act, fleet, look
from outlast.cli.bench import bench
from outlast.cli.chaos import chaos_app
from outlast.cli.decide import decide
from outlast.cli.demo import demo
from outlast.cli.doctor import doctor
from outlast.cli.drain import drain
from outlast.cli.drains import drains
from outlast.cli.exits import EPILOG
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
    rich_markup_mode=None,  # text of others is never markup, and help comes quicker
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in (
    run, submit, worker, look.runs, look.show, fleet.workers, fleet.queues, fleet.limit, drain, drains,
    act.cancel, act.retry, act.resume, decide, act.send, act.prune, sessions, migrate, doctor, bench, manifest,
    explain, demo,
):  # fmt: skip
    app.command(epilog=EPILOG)(command)
app.add_typer(chaos_app, name="chaos")


@cache
def command_line() -> Callable[..., object]:
    """Typer reads the signatures of all commands for it, which takes longer than most of them: once a process."""
    return typer.main.get_command(app)
