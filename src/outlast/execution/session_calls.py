"""Read and change sessions in a run.

Each call reserves a call site like a step. Its entry records what a read found, or which version a
change made. A change and its entry are written together under the run's fence, so the change
happens once, even if others write to the session in between. `Look` and `Change` are used outside a
run too, where nothing is recorded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlast.codec.exceptions import encode_error
from outlast.codec.signature import canonical, shortened
from outlast.errors import LimitExceeded, StoreError, VersionConflict
from outlast.execution import recording
from outlast.execution.call_site import CallSite
from outlast.execution.calls import make_awaitable
from outlast.execution.recording import Enclosing
from outlast.execution.state import EndReason
from outlast.store.commands import (
    VERSION,
    Append,
    DeleteSession,
    ExtendSession,
    Record,
    Refused,
    UpdateSession,
)
from outlast.store.protocol import Store
from outlast.store.rows import SessionRow

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.services import ExecutionServices

T = TypeVar("T")

log = logging.getLogger("outlast.sessions")

TOUCH_BELOW = 0.9
"""A read extends the expiry only if less than this fraction of the time is left, because
extending is a write."""


@dataclass(frozen=True, slots=True)
class At:
    """A session's address, and how long each access keeps it."""

    space: str
    id: str
    ttl: float | None
    extends: bool = False
    """True if the caller gave no time. An existing expiry is not shortened."""

    def __str__(self) -> str:
        return f"{self.space} {self.id!r}"


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """A read. It finds the recorded text, which `decode` turns into the value."""

    at: At
    name: str
    args: tuple[Any, ...]
    find: Callable[[Store], tuple[SessionRow | None, str]]
    decode: Callable[[str], T]
    """Raises Unrecordable if the text is not what was asked for."""
    touches: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """A write.

    With `forget` the session is deleted. Otherwise fields are set or deleted, and values appended.
    """

    at: At
    name: str
    token: str
    args: tuple[Any, ...] = ()
    """The values as the caller gave them. The text of a set, for example, may differ between
    processes."""
    fields: dict[str, str | None] = field(default_factory=dict)
    appends: dict[str, Append] = field(default_factory=dict)
    version: int | None = None
    forget: bool = False
    quiet: bool = False
    """True if the caller does not want the version."""

    @property
    def identity(self) -> str:
        try:
            return fingerprint(self.at.id, *self.args, self.version)
        except (TypeError, ValueError, RecursionError):
            # Fall back to the text that is written.
            return fingerprint(self.at.id, self.fields, self.appends, self.version)

    def command(self, record: Record | None = None) -> UpdateSession | DeleteSession:
        at = self.at
        if self.forget:
            return DeleteSession(at.id, self.token, at.space, record)
        return UpdateSession(
            at.id,
            self.token,
            self.fields,
            at.ttl,
            self.version,
            self.appends,
            at.space,
            record,
            at.extends,
        )

    @property
    def may_grow(self) -> bool:
        return bool(self.appends) or any(value is not None for value in self.fields.values())

    def check(self, row: SessionRow | None, services: ExecutionServices) -> None:
        """Raise LimitExceeded if the change would make the session too large.

        `row` is the session as last read, so concurrent changes are not seen. A session that is
        already too large can still be made smaller.
        """
        settings = services.settings
        lists = (
            {}
            if row is None
            else {name: n for name, n in row.lists.items() if name not in self.fields}
        )
        before = set() if row is None else {*row.fields, *row.lists}
        after = {name for name in before if name not in self.fields} | set(self.appends)
        after |= {name for name, value in self.fields.items() if value is not None}
        if len(after) > max(settings.session_fields_max, len(before)):
            what = f"the fields of {self.at}"
            raise LimitExceeded("session_fields_max", settings.session_fields_max, len(after), what)
        for name, more in self.appends.items():
            count = lists.get(name, 0) + len(more.values)
            count = count if more.keep is None else min(count, more.keep)
            if count > settings.session_items_max:
                what = f"list {name!r} of {self.at}"
                raise LimitExceeded("session_items_max", settings.session_items_max, count, what)

    def decode(self, text: str) -> int | None:
        """Return the version that the change made, from its entry.

        Raise VersionConflict if the store refused it.
        """
        said: dict[str, int] = json.loads(text)
        if "conflict" in said:
            raise VersionConflict(self.at.id, self.version or 0, said["conflict"])
        return None if self.quiet else said.get("version", 0)


# -- outside a run, and in a step's body


async def look(services: ExecutionServices, asked: Look[T]) -> T:
    row, text = await services.store.read(asked.find, services.store.backend)
    if asked.touches:
        touch(services, asked.at, row)
    return asked.decode(text)


async def change(services: ExecutionServices, wanted: Change) -> Any:
    await _check(services, wanted)
    outcome = await services.store.execute(wanted.command())
    text = entry_text(outcome)
    assert text is not None, outcome
    return wanted.decode(text)


async def _check(services: ExecutionServices, wanted: Change) -> None:
    if wanted.may_grow:
        wanted.check(
            await services.store.read(
                services.store.backend.session, wanted.at.id, wanted.at.space
            ),
            services,
        )


def touch(services: ExecutionServices, at: At, row: SessionRow | None) -> None:
    """Extend the expiry of a session after a read.

    The read does not wait for this, and does not fail with it.
    """
    if row is None or row.expires is None:
        return
    if at.ttl is None or row.expires - services.store.now() < TOUCH_BELOW * at.ttl:
        services.store.enqueue(ExtendSession(at.id, at.ttl, at.space), _touched)


def _touched(command: Any, outcome: Any) -> None:
    if isinstance(outcome, StoreError):
        log.warning(
            "the expiry of %s %r was not moved: %s", command.space, command.session, outcome
        )


# -- in a workflow's own code


def look_in_run(execution: RunExecution, asked: Look[T]) -> Coroutine[Any, Any, T]:
    """Reserve the call site of a read now, and return a coroutine that reads when awaited."""
    call_site = execution.calls.reserve(
        "session", asked.name, fingerprint(asked.at.id, *asked.args)
    )
    call_site.codec = partial(_Reads, asked.decode)
    return make_awaitable(execution, call_site, partial(_launch, work=partial(_look, asked=asked)))


def change_in_run(execution: RunExecution, wanted: Change) -> Coroutine[Any, Any, Any]:
    call_site = execution.calls.reserve("session", wanted.name, wanted.identity)
    call_site.codec = partial(_Reads, wanted.decode)
    return make_awaitable(
        execution, call_site, partial(_launch, work=partial(_change, wanted=wanted))
    )


class _Reads:
    """The codec of a session call's entry."""

    def __init__(self, decode: Callable[[str], Any]) -> None:
        self.decode = decode


def _launch(
    execution: RunExecution,
    call_site: CallSite,
    work: Callable[[RunExecution, CallSite], Coroutine[Any, Any, None]],
) -> None:
    """Start the call on the host loop, as part of this execution."""
    task: asyncio.Task[None] = asyncio.Task(
        _follow(execution, call_site, work), loop=execution.host, name=call_site.key
    )
    execution.steps.follow(task)
    execution.services.background.track_task(task)


async def _follow(
    execution: RunExecution,
    call_site: CallSite,
    work: Callable[[RunExecution, CallSite], Coroutine[Any, Any, None]],
) -> None:
    try:
        await work(execution, call_site)
    except asyncio.CancelledError:
        why = "a session call of it was cancelled from outside, as at the end of the program"
        execution.stop(EndReason.released(why))
    except StoreError as error:
        execution.stop(EndReason.write_failed(error))
    except Exception as error:
        text = encode_error(error, execution.services.settings.error_text_max)
        recording.record(execution, "session", call_site.key, call_site.args, error=text)


async def _look(execution: RunExecution, call_site: CallSite, asked: Look[Any]) -> None:
    services = execution.services
    row, text = await services.store.read(asked.find, services.store.backend)
    services.check_size(text, f"what was read of {asked.at}")
    asked.decode(text)
    if asked.touches:
        touch(services, asked.at, row)
    recording.record(execution, "session", call_site.key, call_site.args, value=text)


async def _change(execution: RunExecution, call_site: CallSite, wanted: Change) -> None:
    await _check(execution.services, wanted)
    recording.record(
        execution,
        "session",
        call_site.key,
        call_site.args,
        within=Enclosing(wanted.command, entry_text),
    )


def entry_text(outcome: Any) -> str | None:
    """Return the text for the entry of a change, given the store's answer.

    Return None if the change has no entry.
    """
    if outcome is None:
        return "{}"
    if isinstance(outcome, Refused):
        return json.dumps({"conflict": int(outcome.detail)}) if outcome.why == VERSION else None
    return json.dumps({"version": outcome}) if isinstance(outcome, int) else None


def fingerprint(*parts: Any) -> str:
    """Return a short text that is equal for equal arguments, in every process."""
    return shortened(canonical(parts)[1:-1])
