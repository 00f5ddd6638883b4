"""Start and follow child runs: the runs that `await other_workflow(...)` starts inside a run.

Each child is a run of its own. Its id consists of its parent's id and its call site there, so every
execution of the parent finds the same child.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from outlast.codec.exceptions import CANCELLED, encode_error
from outlast.errors import Conflict, Draining, RunCancelled, RunDead, StoreError
from outlast.execution import release
from outlast.execution.call_site import CallSite, child_id
from outlast.execution.state import EndReason, OutcomeKind, RunOutcome
from outlast.store.commands import Retry, UndoChild
from outlast.store.rows import ENDED, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.definitions import WorkflowCall
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")


def launch(execution: RunExecution, call_site: CallSite, call: WorkflowCall) -> None:
    """Start a child, or find the one that exists. Called on the run loop."""
    id = child_id(execution.id, call_site.key, execution.engine.settings.id_length_max)
    _start(execution, _follow(execution, call_site, call, id))
    call_site.stop = partial(_stop, execution, id)


def _start(execution: RunExecution, work: Coroutine[Any, Any, None]) -> None:
    """Start a task on the host loop, as part of this execution."""
    task: asyncio.Task[None] = asyncio.Task(work, loop=execution.host)
    execution.steps.follow(task)
    execution.engine.track_task(task)


def _stop(execution: RunExecution, id: str) -> None:
    execution.engine.track_task(
        asyncio.Task(execution.engine.cancel(id, "its parent cancelled it"), loop=execution.host)
    )


async def _follow(
    execution: RunExecution, call_site: CallSite, call: WorkflowCall, id: str
) -> None:
    """Start the child, wait for its end, and record the end in the parent's journal."""
    text_max = execution.engine.settings.error_text_max
    try:
        end = await _end(execution, call_site, call, id)
    except asyncio.CancelledError:
        # This execution of the parent ends. The child is a run of its own.
        return
    except Draining:
        # The child was not started. The parent's next execution starts it.
        return
    except StoreError as error:
        execution.stop(EndReason.write_failed(error))
        return
    except Exception as error:
        if execution.record(
            "child", call_site.key, args=call_site.args, error=encode_error(error, text_max)
        ):
            execution.engine.meters.step(
                execution.workflow.name, call.workflow.name, "child", "failed"
            )
        return
    error_text = end.error
    if end.kind is OutcomeKind.CANCELLED:
        cancelled = encode_error(RunCancelled(id, end.reason or ""), text_max)
        error_text = CANCELLED if call_site.cancelled else cancelled
    elif end.kind is OutcomeKind.DEAD:
        error_text = encode_error(RunDead(id, end.reason or ""), text_max)
    if execution.record(
        "child", call_site.key, call_site.args, end.value, error_text, asked=call_site.cancelled
    ):
        is_plain = end.kind in (OutcomeKind.DONE, OutcomeKind.CANCELLED)
        ended = end.kind.value if is_plain else "failed"
        execution.engine.meters.step(execution.workflow.name, call.workflow.name, "child", ended)


async def _end(
    execution: RunExecution, call_site: CallSite, call: WorkflowCall, id: str
) -> RunOutcome:
    engine = execution.engine
    if await _is_to_be_retried(execution, call_site, id):
        # The store refuses this unless the child has failed too, which is fine.
        await engine.writer.execute(Retry(id, secrets.token_hex(8)))
    while True:
        row = await engine.start(call, id, parent=execution.row)
        call_site.child = id
        if row.parent != execution.id:
            raise Conflict(id, "a run of its own", f"a child of {execution.id!r}")
        if call_site.cancelled:
            await engine.cancel(id, "its parent cancelled it")
        try:
            end = await engine.wait_until_ended(id)
        except Draining:
            # The child was released. Its parent waits for it and is released too.
            await execution.host.create_future()
            raise
        if end.kind is not OutcomeKind.PARKED:
            return end
        # The parent waits as long as its child is parked.
        await engine.while_parked(id)


async def _is_to_be_retried(execution: RunExecution, call_site: CallSite, id: str) -> bool:
    """Return whether the child must be retried with its parent.

    Either the retry made the child's end void, or the child ended when its parent failed, which no
    journal records.
    """
    retried = execution.journal.retried
    if call_site.key in execution.journal.voided or retried is None:
        return call_site.key in execution.journal.voided
    row = await execution.engine.read(execution.engine.store.run, id)
    return row is not None and row.ended is not None and row.ended <= retried


def launch_undo(execution: RunExecution, call_site: CallSite, of: str) -> None:
    """Start the compensation of a child that is done. Called on the run loop."""
    id = child_id(execution.id, of, execution.engine.settings.id_length_max)
    _launch(execution, call_site, partial(_undo, execution, call_site, id))


def launch_end_all(execution: RunExecution, call_site: CallSite) -> None:
    """End the children that have not ended, and compensate those whose end is not recorded.

    Called on the run loop.
    """
    _launch(execution, call_site, partial(_end_all, execution, call_site))


def _launch(
    execution: RunExecution, call_site: CallSite, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def follow() -> None:
        try:
            await work()
        except (asyncio.CancelledError, Draining):
            return
        except StoreError as error:
            execution.stop(EndReason.write_failed(error))
            return
        except Exception as error:
            log.error(
                "children of run %s",
                execution.id,
                exc_info=execution.engine.redact_exception(error),
                extra=execution.log_fields(call_site.key),
            )
            release.cannot_tell(
                execution, call_site.key, f"something is wrong with its children: {error!r}."
            )
            await execution.host.create_future()
        execution.record("child", call_site.key, call_site.args, value="null")

    _start(execution, follow())


async def _end_all(execution: RunExecution, call_site: CallSite) -> None:
    engine = execution.engine
    known = {
        child_id(execution.id, one.place, engine.settings.id_length_max)
        for one in execution.journal.effect_log
    }
    async with aclosing(engine.children_of(execution.id)) as children:
        async for row in children:
            if row.id not in known:
                await _undo(execution, call_site, row.id)


async def _undo(execution: RunExecution, call_site: CallSite, id: str) -> None:
    """Wait until a child has ended and has nothing left to compensate.

    A child that only needs compensation may execute here, because its workflow's code is not
    needed.
    """
    engine = execution.engine
    call_site.child = id
    asked: RunRow | None = None
    while True:
        seen = engine.notifier.count
        row = await engine.read(engine.store.run, id)
        if row is None:
            return
        if row.undoing is None and row != asked:
            # Ask once per state of the row: asking triggers the notification awaited below.
            await _ask(execution, row)
            asked = await engine.read(engine.store.run, id)
            continue
        if row.undoing is None and row.status in ENDED:
            return
        if row.status in ("parked", "dead"):
            why = (
                f"its child {id} is {row.status} and cannot be undone: `outlast retry {quote(id)}`."
            )
            release.cannot_tell(execution, call_site.key, why)
            await execution.host.create_future()
        if row.undoing is not None or row.workflow in engine.workflows:
            engine.takeover.start(
                row, engine.workflows.get(row.workflow) or cast("Any", Unneeded(row.workflow))
            )
        elif row.worker is not None:
            await engine.sweeper.sweep()
        await engine.notifier.wait(min(engine.settings.poll, 10 * engine.settings.heartbeat), seen)


async def _ask(execution: RunExecution, row: RunRow) -> None:
    """Ask a child to end, and to compensate its effects."""
    engine, why = execution.engine, f"its parent {execution.id} is undone"
    if row.status not in ENDED:
        await engine.cancel(row.id, why)
    left_alone = _is_left_alone(engine, row)
    await engine.writer.execute(UndoChild(row.id, execution.id, why, unheld=left_alone))


def _is_left_alone(engine: Engine, row: RunRow) -> bool:
    """Return whether no worker has the child or will take it.

    Either it is a dead letter, or this process is not a worker and lacks its code.
    """
    elsewhere = engine.claimer is not None or row.workflow in engine.workflows
    return row.status == "dead" or (
        row.worker is None and row.status not in ENDED and not elsewhere
    )


class Unneeded:
    """A stand-in for the workflow of a run that is only compensated.

    Its code does not execute and may be missing here.
    """

    is_async, timeout = True, None

    def __init__(self, name: str) -> None:
        self.name = name
