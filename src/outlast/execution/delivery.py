"""Deliver entries to the run one at a time, and let it settle after each.

The journal's entries come first, then each new entry once it is durable. If the code does not make
the call that an entry answers, the execution has diverged.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from outlast.codec.cost import UNITS_MAX
from outlast.codec.exceptions import SEQ, decode_error
from outlast.errors import Unrecordable, VersionConflict
from outlast.errors.reasons import STUCK
from outlast.execution import cancellation, ending
from outlast.execution.journal import PLACED
from outlast.execution.run_loop import RunTask
from outlast.execution.state import EndKind, EndReason, ExecutionState
from outlast.execution.unit_scope import UNIT
from outlast.store.commands import Record
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

CALLBACKS_MAX = 1_000_000
"""The limit of callbacks between two entries. A workflow that exceeds it waits for nothing and
spins."""
SLICE = 200
"""The number of entries to replay before the host loop gets its turn."""


def deliver_pending(execution: RunExecution) -> None:
    """Deliver entries until none is pending, the workflow has ended, or the host loop is due.

    Raise Diverged if the code does not match the journal, spins, or waits for something that can
    never come.
    """
    delivered = 0
    while True:
        if not execution.loop.pump(CALLBACKS_MAX):
            raise execution.diverge(
                "a workflow that waits", f"more than {CALLBACKS_MAX:,} callbacks without waiting"
            )
        if execution.main is None:
            return
        if execution.end_reason is not None:
            if execution.end_reason.kind is EndKind.REFUSED:
                _finish(execution, execution.main)
            return
        if execution.main.done():
            _finish(execution, execution.main)
            return
        if execution.thread is not None and execution.thread.busy:
            return
        if not execution.pending:
            break
        if delivered >= SLICE:
            execution.host.call_soon(execution.advance)
            return
        _deliver(execution, execution.pending.popleft())
        delivered += 1
    if execution.state is ExecutionState.REPLAYING:
        _catch_up(execution)
    elif not (
        execution.step_executions
        or _under_way(execution)
        or execution.timers
        or execution.mailbox.waiting
        or execution.pending
    ):
        raise execution.diverge(
            "a run with something to wait for",
            "something that can never come: no step, timer, message or child is under way, and a "
            "lock, event or queue that is shared with other runs or with steps cannot "
            "wake a workflow",
        )


def _under_way(execution: RunExecution) -> bool:
    return any(call_site.coro is None for call_site in execution.call_sites.values())


def _deliver(execution: RunExecution, entry: Entry | Record) -> None:
    if entry.kind in ("retry", "resume", "decision"):
        execution.gap += max(0.0, entry.at - execution.wall)
    execution.wall = max(execution.wall, entry.at)
    execution.time = execution.wall - execution.gap
    execution.last_at = max(execution.last_at, execution.wall)
    execution.loop.open = True
    try:
        if entry.kind in PLACED:
            _answer(execution, entry)
        elif entry.kind == "intent":
            _check_intent(execution, entry)
        elif entry.kind == "fired":
            execution.calls_made += 1
            handle = execution.timers.fired(entry.key)
            if handle is not None:
                # Rounding must not fire the timer early: anyio would set its deadline once more.
                execution.time = max(execution.time, handle.when())
                execution.loop.ready.append(handle)
        elif entry.kind == "message":
            execution.mailbox.deliver(int(entry.value or 0), entry.seq)
        elif entry.kind == "cancel":
            cancellation.cancel_main(execution, entry)
    finally:
        execution.loop.open = False
    if entry.seq in execution.first:
        execution.first.discard(entry.seq)
        if not execution.first:
            execution.host.call_soon(_start_deferred, execution)


def _asked(execution: RunExecution) -> str:
    """Describe the calls that the code has made instead of the one that an entry answers."""
    calls = [str(call_site) for call_site in execution.call_sites.values()]
    more = f" and {len(calls) - 3} more" if len(calls) > 3 else ""
    return (", ".join(calls[:3]) + more) if calls else "nothing more"


def _answer(execution: RunExecution, entry: Entry | Record) -> None:
    call_site = execution.call_sites.pop(entry.key, None)
    execution.journal.placed.pop(entry.key, None)
    if call_site is None or call_site.kind != entry.kind:
        raise execution.diverge(describe(entry), _asked(execution))
    if call_site.effect_call is not None:
        call_site.text = entry.value
    if execution.state is ExecutionState.REPLAYING and entry.kind == "step":
        execution.replayed += 1
    if call_site.cancelled and not entry.asked and call_site.effect_call is None:
        # The call had ended, but the cancellation came first.
        call_site.value, call_site.error = None, call_site.cancelled_error()
    elif call_site.value is None and call_site.error is None:
        if entry.error is not None:
            call_site.error = decode_error(entry.error)
            call_site.error.__dict__[SEQ] = entry.seq
            execution.raised[entry.seq] = entry.key
        elif entry.value is not None and call_site.codec is not None:
            try:
                call_site.value = call_site.codec().decode(entry.value)
            except Unrecordable as error:
                raise execution.diverge(
                    describe(entry), f"a result of another type: {error}"
                ) from error
            except VersionConflict as refused:
                call_site.error = refused
                refused.__dict__[SEQ] = entry.seq
                execution.raised[entry.seq] = entry.key
    call_site.delivered, call_site.stop = True, None
    call_site.wake()


def _check_intent(execution: RunExecution, entry: Entry | Record) -> None:
    """Raise Diverged if an intent belongs to no effect that the workflow has called.

    The workflow does not see intents.
    """
    call_site = execution.call_sites.get(entry.key)
    if call_site is None or call_site.effect_call is None or call_site.args != entry.args:
        raise execution.diverge(describe(entry), _asked(execution))


def _catch_up(execution: RunExecution) -> None:
    """Switch from replay to live execution at the end of the journal.

    Timers that came due in the meantime fire first, since they may cancel calls that would start
    now.
    """
    execution.go_live()
    _count_saved(execution)
    for key in execution.timers.overdue():
        execution.timers.fire(key)
        execution.first.add(execution.seq)
    cancellation.check(execution)
    if execution.row.deadline is not None and execution.row.deadline <= execution.now():
        cancellation.deadline_due(execution)
    if not execution.first:
        execution.host.call_soon(_start_deferred, execution)


def _count_saved(execution: RunExecution) -> None:
    """Update metrics at the end of replay.

    They count the reused results, and the cost that a run saved after a death or an interruption.
    """
    # The journal of a run that only woke up may end like this too. Its row shows neither an
    # interruption nor deaths.
    came_back = execution.row.interrupted is not None or execution.row.deaths_in_a_row > 0
    if execution.replayed:
        execution.engine.meters.replayed(execution.workflow.name, execution.replayed)
        execution.replayed = 0
    if execution.run_cost is not None and execution.run_cost.is_cut and came_back:
        execution.engine.saved = execution.engine.saved.plus(execution.run_cost.kept, UNITS_MAX)


def _start_deferred(execution: RunExecution) -> None:
    if execution.end_reason is not None:
        return
    deferred, execution.deferred_calls = execution.deferred_calls, []
    for call_site in deferred:
        assert call_site.context is not None
        if not execution.may_start(call_site.context.get(UNIT)):
            execution.deferred_calls.append(call_site)
        elif not call_site.delivered:
            call_site.context.run(execution.launch, call_site)
    execution.timers.arm_all()
    if execution.row.deadline is not None and execution.deadline is None:
        cancellation.watch_deadline(execution)
    if execution.mailbox.waiting:
        execution.engine.request_poller.poll_messages(execution)
    execution.advance()


def _finish(execution: RunExecution, main: RunTask) -> None:
    """End the run after its workflow has returned, raised or made a refused call.

    Raise Diverged if the journal has entries that the workflow did not ask for. A compensation that
    raised parks the run.
    """
    if execution.undoing and not main.cancelled() and main.exception() is not None:
        why = (
            f"{STUCK}it cannot be undone ({main.exception()!r}). "
            f"Fix that, then run `outlast retry {quote(execution.id)}`."
        )
        execution.finish_workflow(EndReason.parked(why))
        return
    asked = (
        f"the end of {execution.workflow.name}"
        if execution.end_reason is None
        else f"a refused call: {execution.end_reason.cause}"
    )
    left = [
        entry for key, entry in execution.journal.placed.items() if key not in execution.call_sites
    ]
    if left:
        raise execution.diverge(describe(left[0]), asked)
    for entry in execution.pending:
        if entry.kind == "intent" and entry.key not in execution.call_sites:
            raise execution.diverge(describe(entry), asked)
    if execution.state is ExecutionState.REPLAYING:
        _count_saved(execution)
    settlement = ending.build_settlement(execution, main)
    execution.finish_workflow(EndReason.returned(), settlement)


def describe(entry: Any) -> str:
    """Format an entry the way a call site formats itself."""
    return f"{entry.kind} {entry.key}({entry.args or ''})"
