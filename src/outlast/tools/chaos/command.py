"""`outlast chaos`: start workers, submit work, kill workers by a plan, and check the outcome.

`outlast chaos verify` makes the same checks on any store.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.exit_codes import FAILED
from outlast.cli.help import EPILOG, Command, Group
from outlast.cli.options import JsonOption, StoreOnlyOption, _age
from outlast.cli.output import (
    answering,
    console,
    document,
    obey_signals,
    print_message,
    write_whole,
)
from outlast.cli.stores import reading
from outlast.cli.text import iso
from outlast.errors import OutlastError, SettingsError
from outlast.store.tolerant_rows import legible
from outlast.tools.chaos.trial_arguments import (
    find_work,
    pair_calls,
    parse_faults,
    report_folder,
)
from outlast.tools.chaos.verdict_view import print_summary, print_verdict

if TYPE_CHECKING:
    from outlast.tools.chaos.view import View

SEED_MAX = 2**32
SECONDS_MAX = 86_400.0
KILLS_PER_MINUTE_MAX = 600.0
RATE_MAX = 1_000.0
CONCURRENCY_MAX = 1_000


class ServerKind(StrEnum):
    POSTGRES = "postgres"
    REDIS = "redis"


TRIAL = "trial"


class ReportNotWritten(OutlastError):
    """The trial finished, but its report could not be written."""


class _Group(Group):
    """Treat `outlast chaos …` as a trial unless its first word is another command of chaos."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [TRIAL, *args]
        return super().parse_args(ctx, args)


class _OfChaos(typer.Context):
    """Leave the hidden command name `trial` out of usage lines."""

    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent is not None else super().command_path


class _Trial(Command):
    context_class = _OfChaos


chaos = typer.Typer(
    cls=_Group,
    rich_markup_mode=None,
    help="Kill workers by a plan and check the outcome. `outlast chaos verify` checks a store in "
    "use.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@chaos.command(TRIAL, cls=_Trial, epilog=EPILOG, hidden=True)
def trial(
    module: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE[:APP]", help="Your own workflows instead of those of chaos."
        ),
    ] = None,
    *,
    submit: Annotated[
        list[str] | None,
        typer.Option(
            "--submit",
            metavar="WORKFLOW",
            help="With a MODULE: the workflow to submit, by name; may be repeated.",
        ),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="Its arguments, a list or an object; {n} becomes the run's number.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=SEED_MAX,
            help="Decides which fault hits which worker and when. By default random, and printed.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=1, max=SECONDS_MAX, help="How long faults are injected, in seconds."
        ),
    ] = 60.0,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=200,
            help="How many workers. By default 3; with a file: store 1.",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            min=1,
            max=CONCURRENCY_MAX,
            help="Runs that each worker executes at a time.",
        ),
    ] = 10,
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, max=RATE_MAX, help="Runs submitted per second.")
    ] = 5.0,
    kills_per_minute: Annotated[
        float,
        typer.Option(
            "--kills-per-minute",
            min=0,
            max=KILLS_PER_MINUTE_MAX,
            help="Faults per minute. 0: none, to see what is slow by itself.",
        ),
    ] = 20.0,
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            "--blows",
            metavar="KIND,…",
            help="The kinds of faults: term, kill, stop, rolling, fleet, server. By default all "
            "possible ones.",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option("--grace", min=1, max=SECONDS_MAX, help="Seconds a worker has after SIGTERM."),
    ] = 5.0,
    lease: Annotated[
        float,
        typer.Option("--lease", min=0.5, max=SECONDS_MAX, help="Seconds a worker may be silent."),
    ] = 2.0,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            min=0,
            max=SECONDS_MAX,
            help="Seconds to wait at the end until every run has ended.",
        ),
    ] = 60.0,
    objective: Annotated[
        float,
        typer.Option(
            "--objective",
            min=0,
            max=SECONDS_MAX,
            help="Seconds within which a run must continue after a fault.",
        ),
    ] = 30.0,
    server: Annotated[
        ServerKind | None,
        typer.Option(
            "--server",
            help="Start a server for the store, and kill that too. Needs the package that contains "
            "it.",
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Start even if other workers use the store.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="The folder for report.json, report.html and the workers' logs. By default a new "
            "temporary folder.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="ADDRESS",
            help="The store. By default a new SQLite file beside the report; never OUTLAST_STORE.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start workers, submit work, kill workers by a plan, and check the outcome.

    The checks run once every run has ended. `outlast chaos verify` makes the same checks on a store
    that is in use. Chaos kills only workers that it started. It exits with 1 if a check is
    violated; without a MODULE, even if the result of a check is unknown.
    """
    kinds = parse_faults(faults, server)
    with answering(as_json):
        # Inside `answering`, because these calls create an app whose settings may be wrong.
        from outlast.tools.chaos.experiment import Experiment
        from outlast.tools.chaos.html_report import page
        from outlast.tools.chaos.options import DEMO, Options
        from outlast.tools.chaos.report import document as report_document
        from outlast.tools.chaos.report import passed

        if store is not None and server is not None:
            raise typer.BadParameter(
                "--server starts a store of its own: leave out --store.", param_hint="--server"
            )
        chosen = secrets.randbelow(SEED_MAX) if seed is None else seed
        work, modules = find_work(chosen, module, submit, args)
        exclusive = store is not None and store.startswith("file:")
        options = Options(
            seed=chosen,
            seconds=seconds,
            workers=workers or (1 if exclusive else 3),
            concurrency=concurrency,
            rate=rate,
            per_minute=kills_per_minute,
            kinds=kinds,
            grace=grace,
            lease=lease,
            settle=settle,
            objective=objective,
            store=store,
            server=server,
            shared=shared,
            modules=tuple(modules or DEMO),
            demo=not modules,
            submit=tuple(pair_calls(submit, args)),
        )
        made = report is None or not report.exists()
        folder = report_folder(report)
        # The experiment makes the store unavailable on purpose, and the view reports it.
        logging.getLogger("outlast").addHandler(logging.NullHandler())
        obey_signals()
        print_message(f"chaos with seed {chosen}; its report and logs go to {folder}")
        view = _view(as_json)
        try:
            outcome = Experiment(options, work, folder, view).run()
        except KeyboardInterrupt:
            print_message(
                "there is no report, because chaos was interrupted; the workers' logs are in "
                f"{folder}"
            )
            raise
        # The experiment has not begun.
        except SettingsError:
            if made and not any(folder.iterdir()):
                folder.rmdir()
            raise
        finally:
            view.close()
        found = report_document(outcome)
        if as_json:
            document(found)
        else:
            print_verdict(outcome.verdict)
            print_summary(found)
        _write(folder / "report.json", json.dumps(found, indent=2))
        _write(folder / "report.html", page(found))
        print_message(f"the report: {folder / 'report.html'}")
        if outcome.kept is not None:
            print_message(f"the server's data are in {outcome.kept}")
    if not passed(outcome):
        raise typer.Exit(FAILED)


@chaos.command(cls=Command, epilog=EPILOG)
def verify(
    *,
    since: Annotated[
        float,
        typer.Option(
            "--since",
            parser=_age,
            metavar="AGE",
            help="Check runs that were active within this time: 30m, 2h, 1d.",
        ),
    ],
    objective: Annotated[
        float,
        typer.Option(
            "--objective",
            min=0,
            help="Seconds within which a run must continue after it lost its worker: more than a "
            "lease.",
        ),
    ] = 60.0,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Also read the journals of runs that one execution completed."
        ),
    ] = False,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the checks of chaos on a store that is in use, for instance after a rollout.

    It changes no run and disturbs no worker. A check that only an outside ledger can answer is
    reported as unknown. Exits with 1 if a check is violated.
    """
    from outlast.tools.chaos.checks import check
    from outlast.tools.chaos.findings import Scope

    with answering(as_json), reading(store) as opened:
        begin = opened.now() - since
        with legible("the store"):
            verdict = check(opened, Scope(since=begin, objective=objective, thorough=thorough))
        if as_json:
            document({"since": iso(begin), **verdict.document()})
        else:
            print_verdict(verdict)
    if verdict.violated:
        raise typer.Exit(FAILED)


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all. Raise ReportNotWritten if it fails.

    The verdict has been printed by then.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise ReportNotWritten(f"{path} could not be written: {error}") from error


def _view(as_json: bool) -> View:
    from outlast.tools.chaos.view import Lines, Screen

    if as_json:
        return Lines(sys.stderr)
    return Screen() if sys.stdout.isatty() and not console().is_dumb_terminal else Lines()
