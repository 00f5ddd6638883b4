"""`outlast ui`: serve the web UI of a store until told to stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Annotated

import typer

from outlast.cli.exit_codes import FAILED, OK
from outlast.cli.options import StoreOnlyOption
from outlast.cli.output import answering
from outlast.cli.serve import app_to_serve, serve_until_drained
from outlast.cli.worker_target import WorkerTarget, worker_target
from outlast.errors import OutlastError, SettingsError
from outlast.settings.http_address import is_for_this_machine, parse
from outlast.telemetry.logs import LogForm, configure

log = logging.getLogger("outlast.serve")

ADDRESS = "127.0.0.1:8321"
LOCAL = "local"
"""The name that is recorded for the visitor of a UI without tokens."""


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
        address = listen or ADDRESS
        parse(address)
        app.configure(http="")
        token = _own_token(address) if not app.settings.api_tokens else None
        from outlast.http.api_server import ApiServer

        tokens = None if token is None else [f"{LOCAL}:operator:{token}"]
        server = ApiServer(app, address, tokens=tokens, has_ui=True)

        def print_message() -> None:
            path = "/" if token is None else f"/login?token={token}"
            typer.echo(f"Open {server.url}{path}")

        try:
            code = asyncio.run(serve_until_drained(app, server, print_message))
        except OutlastError:
            raise
        except Exception:
            log.exception("this server exits because the program failed", extra={"event": "failed"})
            code = FAILED
    if code != OK:
        raise typer.Exit(code)


def _own_token(address: str) -> str:
    """Return a token for this process. Raise SettingsError if others can reach the address."""
    if not is_for_this_machine(address):
        raise SettingsError(
            f"the address {address} can be reached from elsewhere, and OUTLAST_API_TOKENS is not "
            "set. Set it to name:role:token,… or listen on 127.0.0.1."
        )
    return secrets.token_urlsafe(24)
