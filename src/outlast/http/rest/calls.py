"""Hold what routes need: the request, its caller and the API."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import Response

from outlast.codec.documents import render
from outlast.errors import OutlastError, UnknownRun
from outlast.http.rest.history_cache import HistoryCache
from outlast.http.rest.masking import mask
from outlast.http.rest.problems import NO_STORE, Problem
from outlast.http.rest.roles import Caller, Role
from outlast.store.protocol import Store
from outlast.store.rows import RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.http.rest.access import Gate
    from outlast.http.status import AppStatus
    from outlast.settings import Settings


class ServedApp(Protocol):
    """The parts of an Outlast that the API uses."""

    settings: Settings

    @property
    def status_provider(self) -> AppStatus:
        """Return the status of the open app. Raise OutlastError if it is not open."""

    def watch(self, run_id: str, stream: str | None = None, *, after: str | None = None) -> Any:
        """Follow a stream of a run, or the run itself."""

    async def schedule(self, name: str, call: Any, **options: Any) -> Any:
        """Run a call at the times given by the options."""


@dataclass(slots=True)
class Api:
    """What all requests share."""

    app: ServedApp
    gate: Gate
    masked_roles: frozenset[Role]
    histories: HistoryCache = field(default_factory=HistoryCache)
    waiting: Counter[str] = field(default_factory=Counter)
    """How many requests of each caller wait for something."""

    def engine(self) -> Engine:
        """Return the engine of the open app. Raise Problem 503 if the app is not open here."""
        try:
            engine = self.app.status_provider.engine
        except OutlastError:
            engine = None
        if engine is None or engine.loop is not asyncio.get_running_loop():
            raise Problem(
                503,
                "The Outlast behind this API is not open on the server's event loop.",
                next="Open it in the lifespan of the web server: outlast.http.lifespan(app).",
                kind="NotOpen",
                headers={"retry-after": "1"},
            )
        return engine


class ApiCall:
    """One request, with its caller and what the caller may see."""

    def __init__(self, api: Api, engine: Engine, caller: Caller) -> None:
        self.api = api
        self.engine = engine
        self.caller = caller

    @property
    def by(self) -> str:
        return self.caller.name

    @property
    def is_own_only(self) -> bool:
        """Return whether the caller may see only its own runs."""
        return self.caller.role is Role.SUBMITTER

    @property
    def is_masked(self) -> bool:
        """Return whether values are hidden from the caller."""
        return self.caller.role in self.api.masked_roles

    def masked(self, document: Any) -> Any:
        """Return a document as the caller may see it."""
        return mask(document) if self.is_masked else document

    def check_own(self, row: RunRow | None, id: str) -> RunRow:
        """Return the row. Raise UnknownRun if there is none that the caller may see."""
        if row is None or (self.is_own_only and row.by != self.caller.name):
            raise UnknownRun(id)
        return row

    async def row(self, id: str) -> RunRow:
        """Return the row of a run that the caller may see, or raise UnknownRun."""
        return self.check_own(await self.engine.client.read(self.engine.store.run, id), id)

    async def answer(self, document: Callable[[Store], Any], status: int = 200) -> Response:
        """Answer with a document that is read and rendered in a thread."""

        def read(store: Store) -> bytes:
            return render(document(store))

        return _response(await self.engine.client.read(read, self.engine.store), status)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a request that waits, as `begin_waiting` does."""
        release = self.begin_waiting()
        try:
            yield
        finally:
            release()

    def begin_waiting(self) -> Callable[[], None]:
        """Count a request that waits, and return what ends that.

        Raise Problem 429 if the caller has too many.
        """
        waiting, most = self.api.waiting, self.engine.settings.api_streams_max
        if waiting[self.by] >= most:
            raise Problem(
                429,
                f"{self.by!r} already has {most} waiting requests, which is the limit.",
                next="Close one, or raise the limit on the server: OUTLAST_API_STREAMS_MAX.",
                headers={"retry-after": "1"},
            )
        waiting[self.by] += 1

        def release() -> None:
            waiting[self.by] -= 1
            if not waiting[self.by]:
                del waiting[self.by]

        return release


def answer(document: Any, status: int = 200, **headers: str) -> Response:
    """Answer with a small document."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _response(render(document), status, named)


def _response(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(
        body, status, headers={**(headers or {}), **NO_STORE}, media_type="application/json"
    )
