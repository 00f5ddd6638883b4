"""`outlast ui`: serve the web UI of a store until told to stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from outlast.cli.exit_codes import FAILED, OK
from outlast.cli.options import StoreOnlyOption
from outlast.cli.output import answering
from outlast.cli.pages_server import PagesServer
from outlast.cli.serve import app_to_serve, serve_until_drained
from outlast.cli.worker_target import WorkerTarget, worker_target
from outlast.errors import OutlastError
from outlast.telemetry.logs import LogForm, configure

log = logging.getLogger("outlast.serve")

ADDRESS = "127.0.0.1:8321"


def ui(
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE[:APP]",
            help="Files or modules whose Outlast object names the store. Not needed otherwise.",
        ),
    ] = None,
    *,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help=f"Where to listen. By default {ADDRESS}."
        ),
    ] = None,
    form: Annotated[
        LogForm | None,
        typer.Option("--log", help="How to log. By default text on a terminal, json otherwise."),
    ] = None,
    store: StoreOnlyOption = None,
) -> None:
    """Serve the web UI of a store until SIGTERM or SIGINT.

    Visitors sign in with a token of OUTLAST_API_TOKENS. Without tokens, and only on this machine,
    it makes one and prints a link with it.

    It executes no runs. The HTTP API answers under /v1, and /health and /ready as in `outlast
    serve`.
    """
    with answering(as_json=False):
        place = worker_target(modules) if modules else WorkerTarget([], None)
        configure(form)
        app = app_to_serve(place, store)
        app.configure(http="")
        site = PagesServer(app, listen or ADDRESS)
        try:
            code = asyncio.run(serve_until_drained(app, site.server, site.print_link))
        except OutlastError:
            raise
        except Exception:
            log.exception("The program failed, so this server exits.", extra={"event": "failed"})
            code = FAILED
    if code != OK:
        raise typer.Exit(code)
