"""Read and change sessions in a run.

Each call reserves a call site like a step. Its entry records what a read found, or what a change
returned. A change and its entry are written together under the run's fence, so the change happens
once, even if others write to the session in between. `Read` and `Write` are used outside a run too,
where nothing is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlast.codec.exceptions import encode_error
from outlast.errors import StoreError
from outlast.execution import recording
from outlast.execution.call_site import CallSite
from outlast.execution.calls import make_awaitable
from outlast.execution.execution_state import EndReason
from outlast.execution.recording import Enclosing
from outlast.execution.session_changes import At, Write, entry_text, fingerprint
from outlast.store.commands import ExtendSession
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionRow

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.services import ExecutionServices

T = TypeVar("T")

log = logging.getLogger("outlast.sessions")

TOUCH_BELOW = 0.9
"""A read extends the expiry only if less than this fraction of the time is left, because
extending is a write."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A read. It finds the recorded text, which `decode` turns into the value."""

    at: At
    name: str
    args: tuple[Any, ...]
    find: Callable[[Store], tuple[SessionRow | None, str]]
    decode: Callable[[str], T]
    """Raises Unrecordable if the text is not what was asked for."""
    touches: bool = True


# -- outside a run, and in a step's body


async def read(services: ExecutionServices, wanted: Read[T]) -> T:
    row, text = await services.store.read(wanted.find, services.store.backend)
    if wanted.touches:
        touch(services, wanted.at, row)
    return wanted.decode(text)


async def change(services: ExecutionServices, wanted: Write, *, alone: bool = False) -> Any:
    """Make a change. `alone` says that nothing else is being written that could share a commit."""
    command = wanted.command(services.settings)
    return wanted.returned(await services.store.execute(command, alone=alone))


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
            "The expiry of %s %r was not extended: %s", command.space, command.session, outcome
        )


# -- in a workflow's own code


def read_in_run(execution: RunExecution, wanted: Read[T]) -> Coroutine[Any, Any, T]:
    """Reserve the call site of a read now, and return a coroutine that reads when awaited."""
    call_site = execution.calls.reserve(
        "session", wanted.name, fingerprint(wanted.at.id, *wanted.args)
    )
    call_site.codec = partial(_Reads, wanted.decode)
    return make_awaitable(
        execution, call_site, partial(_launch, work=partial(_read, wanted=wanted))
    )


def change_in_run(execution: RunExecution, wanted: Write) -> Coroutine[Any, Any, Any]:
    call_site = execution.calls.reserve("session", wanted.name, wanted.identity)
    call_site.codec = partial(_Reads, wanted.decode)
    return make_awaitable(execution, call_site, partial(_record, wanted=wanted))


def _record(execution: RunExecution, call_site: CallSite, wanted: Write) -> None:
    """Submit the change with its entry. The store checks everything."""
    within = Enclosing(partial(wanted.command, execution.services.settings), entry_text)
    recording.record(execution, "session", call_site.key, call_site.args, within=within)


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


async def _read(execution: RunExecution, call_site: CallSite, wanted: Read[Any]) -> None:
    services = execution.services
    row, text = await services.store.read(wanted.find, services.store.backend)
    services.check_size(text, f"what was read of {wanted.at}")
    wanted.decode(text)
    if wanted.touches:
        touch(services, wanted.at, row)
    recording.record(execution, "session", call_site.key, call_site.args, value=text)
