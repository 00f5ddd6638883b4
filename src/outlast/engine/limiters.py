"""Hold the limiters that this process uses, and list those of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from outlast.codec.rates import Rate
from outlast.engine.background import Background
from outlast.engine.limiter_queue import LIMITERS, STATE, LimiterQueue
from outlast.engine.limiter_state import LimiterState
from outlast.engine.store_client import StoreClient
from outlast.errors import SettingsError
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionQuery

PAGE = 100


class LimitInfo(NamedTuple):
    """One limit of a limiter: what it allows, and what counts now."""

    limit: int
    """How much the period allows."""
    period: float
    """Seconds."""
    used: int
    """What counts now. It can exceed the limit if uses took more than they had reserved."""
    waiting: int
    """What the waiting uses have requested."""


class LimiterInfo(NamedTuple):
    """A limiter and its remaining amounts."""

    name: str
    limits: dict[str, LimitInfo]
    waiting: int
    """How many uses wait, in all processes."""
    next_at: float | None
    """When the next of them may begin, in seconds since 1970. None if none waits."""


class Limiters:
    """The queues of the limiters that this process uses, by name."""

    def __init__(
        self, client: StoreClient, background: Background, shutdown: ShutdownState
    ) -> None:
        self._client = client
        self._background = background
        self._shutdown = shutdown
        self._queues: dict[str, LimiterQueue] = {}

    def get(self, name: str, rates: Mapping[str, Rate]) -> LimiterQueue:
        """Return the queue of a limiter. Raise SettingsError if it has other rates here."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = LimiterQueue(
                name, rates, self._client, self._background, self._shutdown
            )
        elif queue.rates != rates:
            raise SettingsError(
                f"limiter {name!r} is defined twice in this program, with different limits. Define "
                "it once and import it."
            )
        return queue

    async def all(self) -> list[LimiterInfo]:
        """Return all limiters of the store, ordered by name. Leave out damaged ones."""
        found, _ = await self._client.read(read_limiters, self._client.store)
        return found


def read_limiters(store: Store) -> tuple[list[LimiterInfo], list[str]]:
    """Return the limiters of a store, ordered by name, and the names of damaged ones."""
    found: list[LimiterInfo] = []
    damaged: list[str] = []
    now = store.now()
    query = SessionQuery(LIMITERS, by_id=True, values=True, limit=PAGE)
    while page := store.sessions(query):
        for row in page:
            try:
                found.append(_info(row.id, LimiterState.read(row.fields[STATE]), now))
            except (KeyError, TypeError, ValueError):
                damaged.append(row.id)
        query = query._replace(after=page[-1].id)
    return found, damaged


def _info(name: str, state: LimiterState, now: float) -> LimiterInfo:
    state.expire(now)
    used = state.used(now)
    waiting = [one for one in state.tickets if one.at > now]
    limits = {
        unit: LimitInfo(
            rate.limit, rate.period, used[unit], sum(one.amounts.get(unit, 0) for one in waiting)
        )
        for unit, rate in state.rates.items()
    }
    return LimiterInfo(name, limits, len(waiting), waiting[0].at if waiting else None)
