"""`outlast serve`: answer the HTTP API until told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.cli.exit_codes import FAILED, OK
from outlast.cli.options import StoreOnlyOption
from outlast.cli.output import answering
from outlast.cli.stores import shared
from outlast.cli.worker import drain_or_loss, place_of
from outlast.cli.worker_target import WorkerTarget, worker_target
from outlast.errors import OutlastError
from outlast.settings.http_address import parse
from outlast.shutdown.process import ProcessRole
from outlast.telemetry.logs import LogForm, configure

if TYPE_CHECKING:
    from outlast.http.api_server import ApiServer

log = logging.getLogger("outlast.serve")

ADDRESS = "127.0.0.1:8000"


def serve(
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE[:APP]",
            help="Files or modules whose workflows can be submitted. Without one, runs can be "
            "inspected and controlled.",
        ),
    ] = None,
    *,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Where to listen. By default OUTLAST_HTTP, else {ADDRESS}.",
        ),
    ] = None,
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback",
            help="Need no token, and answer only programs on this machine.",
        ),
    ] = False,
    form: Annotated[
        LogForm | None,
        typer.Option("--log", help="How to log. By default text on a terminal, json otherwise."),
    ] = None,
    store: StoreOnlyOption = None,
) -> None:
    """Serve the HTTP API of a store until SIGTERM or SIGINT.

    It executes no runs: start workers for that. OUTLAST_API_TOKENS says who may use it:
    name:role:token items, separated by commas, with the roles viewer, submitter and operator.

    /health and /ready answer without a token. After a signal /ready answers 503, streams end with
    their cursors, and the process exits within OUTLAST_GRACE seconds: with 0 after SIGTERM, and
    with 130 after SIGINT.
    """
    with answering(as_json=False):
        place = worker_target(modules) if modules else WorkerTarget([], None)
        configure(form)
        app = app_to_serve(place, store)
        address = listen or app.settings.http or ADDRESS
        parse(address)
        app.configure(http="")
        from outlast.http.api_server import ApiServer

        server = ApiServer(app, address, insecure_loopback=insecure_loopback)
        try:
            code = asyncio.run(serve_until_drained(app, server))
        except OutlastError:
            raise
        except Exception:
            log.exception("The program failed, so this server exits.", extra={"event": "failed"})
            code = FAILED
    if code != OK:
        raise typer.Exit(code)


def app_to_serve(place: WorkerTarget, store: str | None) -> Outlast:
    """Return the app of the modules, or one of the store, that executes nothing."""
    if place.app is None:
        return Outlast(shared(store), workflows=place.workflows)
    chosen: dict[str, Any] = {"worker": False, "workflows": place.workflows}
    if store is not None:
        chosen["store"] = store
    place.app.configure(**chosen)
    return place.app


async def serve_until_drained(
    app: Outlast, server: ApiServer, started: Callable[[], None] | None = None
) -> int:
    """Serve until the app has drained, and return the exit code. Call `started` once it listens."""
    internals(app).set_process(ProcessRole.WORKER)
    async with app:
        server.start()
        log.info(
            "Serving at %s",
            server.url,
            extra={"event": "serving", "url": server.url, "store": place_of(app)},
        )
        if started is not None:
            started()
        try:
            await drain_or_loss(app)
        finally:
            await server.stop()
    log.info("The server has stopped.", extra={"event": "stopped"})
    return internals(app).exit_code
