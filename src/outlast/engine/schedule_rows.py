"""Define what a store keeps of a schedule: a session with its definition and its state.

Both are JSON in fields of one session, in a space of their own. Each change names the version that
it is based on, so that of two workers that see the same firing, one records it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.engine.schedule_timing import Timing
from outlast.errors import SettingsError, StoreBroken
from outlast.store.commands import DeleteSession, Refused, UpdateSession
from outlast.store.session_rows import SessionQuery, SessionRow

if TYPE_CHECKING:
    from outlast.engine.store_client import StoreClient
    from outlast.store.protocol import Store

SCHEDULES = "schedules"
"""The session space of schedules."""
DEFINITION, STATE = "definition", "state"
PAGE = 100


class Overlap(StrEnum):
    """What happens to a firing while the run of the one before has not ended."""

    SKIP = "skip"
    """It starts no run."""
    QUEUE = "queue"
    """Its run starts when that one has ended."""
    CANCEL = "cancel"
    """That one is cancelled, and its run starts when that has ended."""
    ALLOW = "allow"
    """Its run starts at once."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a schedule starts, and when. The program sets it."""

    workflow: str
    args: str
    """The encoded arguments of each run."""
    cron: str | None
    every: float | None
    tz: str
    overlap: Overlap
    catch_up: int
    """How many missed firings start a run when workers return, newest first."""
    jitter: float
    """Each run is delayed by up to this many seconds."""
    queue: str
    priority: int
    timeout: float | None
    abandon_after: float | None
    key: str | None = None


class Firing(NamedTuple):
    """One time of a schedule, and its run."""

    id: str
    at: float


@dataclass(frozen=True, slots=True)
class State:
    """What has become of a schedule so far. Workers change it."""

    start: float
    """When it was first set. Intervals count from it."""
    fired: float
    """Times up to this one are dealt with."""
    paused: bool = False
    pending: tuple[Firing, ...] = ()
    """Firings whose runs are being submitted. They are submitted again until that is known."""
    waiting: tuple[float, ...] = ()
    """Firings that wait until the run before them has ended."""
    last: Firing | None = None
    """The last firing that started a run."""
    skipped: int = 0
    """How many firings started no run, because the one before had not ended."""
    by: str | None = None
    """Who set, paused or resumed it last."""


class ScheduleRow(NamedTuple):
    name: str
    version: int
    definition: Definition
    state: State

    @property
    def timing(self) -> Timing:
        definition = self.definition
        return Timing(definition.cron, definition.every, definition.tz, self.state.start)

    def next(self) -> float | None:
        """Return when it fires next. None if it is paused."""
        return None if self.state.paused else self.timing.next(self.state.fired)

    def upcoming(self, now: float, count: int) -> list[float]:
        """Return the next `count` times from now on. There are none if it is paused."""
        if self.state.paused:
            return []
        return list(islice(self.timing.after(max(now, self.state.fired)), count))


def firing_id(name: str, at: float) -> str:
    """Return the id of the run of a firing: the schedule's name and the time in UTC."""
    moment = datetime.fromtimestamp(at, UTC)
    digits = "milliseconds" if moment.microsecond else "seconds"
    return f"{name}@{moment.replace(tzinfo=None).isoformat(timespec=digits)}Z"


class ScheduleRows:
    """Read and change the schedules of a store."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def get(self, name: str) -> ScheduleRow | None:
        found = await self._client.read(self._client.store.session, name, SCHEDULES)
        return None if found is None else row_of(found)

    async def all(self, on_damaged: Callable[[StoreBroken], object]) -> list[ScheduleRow]:
        """Return all schedules, ordered by name. Leave out damaged ones, and report each."""
        rows, damaged = await self._client.read(read_schedules, self._client.store)
        for error in damaged:
            on_damaged(error)
        return rows

    async def change(
        self, name: str, version: int, *, state: State, definition: Definition | None = None
    ) -> bool:
        """Write a state, and a definition if there is one, over this version of a schedule.

        Return False if another process has changed the schedule meanwhile. Version 0 creates it.
        """
        fields = {STATE: json.dumps(asdict(state))}
        if definition is not None:
            fields[DEFINITION] = json.dumps(asdict(definition))
        command = UpdateSession(
            name,
            secrets.token_hex(8),
            dict(fields),
            version=version,
            space=SCHEDULES,
        )
        return not isinstance(await self._client.writer.execute(command), Refused)

    async def delete(self, name: str) -> bool:
        """Delete a schedule, also a damaged one. Return False if it does not exist."""
        if await self._client.read(self._client.store.session, name, SCHEDULES) is None:
            return False
        command = DeleteSession(name, secrets.token_hex(8), space=SCHEDULES)
        await self._client.writer.execute(command)
        return True


def read_schedules(store: Store) -> tuple[list[ScheduleRow], list[StoreBroken]]:
    """Return all schedules, ordered by name, and what is wrong with each damaged one."""
    rows: list[ScheduleRow] = []
    damaged: list[StoreBroken] = []
    query = SessionQuery(SCHEDULES, by_id=True, values=True, limit=PAGE)
    while page := store.sessions(query):
        for one in page:
            try:
                rows.append(row_of(one))
            except StoreBroken as error:
                damaged.append(error)
        query = query._replace(after=page[-1].id)
    return rows, damaged


def row_of(row: SessionRow) -> ScheduleRow:
    """Build a schedule from its session.

    Raise StoreBroken if it is damaged, or if this machine does not know its time zone.
    """
    try:
        definition = _definition_of(json.loads(row.fields[DEFINITION]))
        state = _state_of(json.loads(row.fields[STATE]))
        found = ScheduleRow(row.id, row.version, definition, state)
        found.timing.check()
    except SettingsError as error:
        raise StoreBroken(f"schedule {row.id!r} cannot be used on this machine: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise StoreBroken(
            f"schedule {row.id!r} is damaged in the store ({error!r}). Delete it with `outlast "
            f"schedule delete`, and let the program set it again."
        ) from None
    return found


def _definition_of(fields: dict[str, Any]) -> Definition:
    definition = Definition(**fields)
    return replace(definition, overlap=Overlap(definition.overlap))


def _state_of(fields: dict[str, Any]) -> State:
    state = State(**fields)
    return replace(
        state,
        pending=tuple(Firing(*one) for one in state.pending),
        waiting=tuple(state.waiting),
        last=None if state.last is None else Firing(*state.last),
    )
