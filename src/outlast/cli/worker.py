"""`outlast worker`: claim and execute runs until told to stop. Workers can share a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.cli.exit_codes import FAILED, OK, code_of
from outlast.cli.options import StoreOnlyOption
from outlast.cli.output import answering, print_error
from outlast.cli.pages_server import PagesServer
from outlast.cli.self_kill import schedule_self_kill
from outlast.cli.stores import shared
from outlast.cli.worker_target import WorkerTarget, worker_target
from outlast.codec.identifiers import check_queue_name
from outlast.errors import OutlastError, StoreBroken
from outlast.settings import Settings
from outlast.settings.redaction import masked
from outlast.shutdown.process import ProcessRole, end_now
from outlast.telemetry.logs import LogForm, configure

log = logging.getLogger("outlast.worker")

CONCURRENCY_MAX = 100_000


def worker(
    modules: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE[:APP]",
            help="Files or modules whose workflows to execute; after a colon, the Outlast object "
            "to use (else `app`).",
        ),
    ],
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Claim from this queue; may be repeated. No patterns. By default: default.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            max=CONCURRENCY_MAX,
            help="Runs at a time. By default OUTLAST_CONCURRENCY.",
        ),
    ] = None,
    pages: Annotated[
        str | None,
        typer.Option(
            "--ui", metavar="HOST:PORT", help="Also serve the web UI and the HTTP API there."
        ),
    ] = None,
    form: Annotated[
        LogForm | None,
        typer.Option("--log", help="How to log. By default text on a terminal, json otherwise."),
    ] = None,
    store: StoreOnlyOption = None,
) -> None:
    """Claim and execute runs until SIGTERM or SIGINT.

    After either signal no new step starts, running steps have OUTLAST_GRACE seconds to end, and
    another worker continues the runs. The exit code is 0 after SIGTERM and 130 after SIGINT. A
    second SIGINT ends the worker at once.

    If a module has an Outlast object named `app`, or the one you name after the colon, its store,
    settings, lifespan and hooks are used. --store takes precedence over its store.

    With --ui, visitors sign in as with `outlast ui`. /health and the other routes of OUTLAST_HTTP
    stay on an address of their own, and answer while the event loop is blocked.
    """
    with answering(as_json=False):
        settings = Settings.load({"store": store})
        queues = [check_queue_name(name, settings.name_length_max) for name in queue or ()]
        place = worker_target(modules)
        configure(form)
        app = _app(place, queues, concurrency, store)
        site = None if pages is None else PagesServer(app, pages)
        try:
            code = asyncio.run(_work(app, place, site))
        except OutlastError:
            raise
        # The program's own exception, for example from its lifespan.
        except Exception:
            log.exception("The program failed, so this worker exits.", extra={"event": "failed"})
            code = FAILED
    if code != OK:
        raise typer.Exit(code)


def _app(
    place: WorkerTarget, queues: Sequence[str], concurrency: int | None, store: str | None
) -> Outlast:
    # A worker without workflows exists for the queues its lifespan consumes.
    chosen: dict[str, Any] = {"worker": bool(place.workflows), "workflows": place.workflows}
    if queues:
        chosen["queues"] = list(dict.fromkeys(queues))
    if concurrency is not None:
        chosen["concurrency"] = concurrency
    if place.app is None:
        return Outlast(shared(store), **chosen)
    if store is not None:
        chosen["store"] = store
    place.app.configure(**chosen)
    return place.app


def place_of(app: Outlast) -> str:
    """Return the location of the app's store, with secrets masked."""
    store = internals(app).engine.store
    return masked(str(getattr(store, "place", type(store).__name__)))


async def drain_or_loss(app: Outlast) -> None:
    """Wait until a drain begins. Raise StoreBroken if the store was removed.

    A supervisor then restarts the worker on the store that exists now.
    """
    drain = asyncio.ensure_future(app.wait_drain())
    lost = internals(app).engine.maintenance.store_lost
    try:
        await asyncio.wait((drain, lost), return_when=asyncio.FIRST_COMPLETED)
    finally:
        drain.cancel()
    if lost.done():
        raise lost.result()


async def _work(app: Outlast, place: WorkerTarget, site: PagesServer | None) -> int:
    """Work until the app has drained, and return the exit code."""
    internals(app).set_process(ProcessRole.WORKER)
    try:
        await _until_drained(app, place, site)
    except StoreBroken as error:
        # The event loop would wait for tasks that refuse to end.
        if error.gone and internals(app).is_hung:
            print_error(error)
            end_now(code_of(error))
        raise
    log.info("The worker has stopped.", extra={"event": "stopped"})
    return internals(app).exit_code


async def _until_drained(app: Outlast, place: WorkerTarget, site: PagesServer | None) -> None:
    async with app if site is None else site.around(app):
        names = sorted(workflow.name for workflow in place.workflows)
        registration = internals(app).engine.worker
        log.info(
            "The worker is ready.",
            extra={
                "event": "working",
                "worker": registration.id,
                "queues": registration.offer.queues,
                "workflows": names,
                "concurrency": app.settings.concurrency,
                "store": place_of(app),
            },
        )
        striking = schedule_self_kill(app) if app.settings.chaos_kills_per_hour else None
        try:
            await drain_or_loss(app)
        finally:
            if striking is not None:
                striking.cancel()
