"""Deliver entries to the run one at a time, and let it settle after each.

The journal's entries come first, then each new entry once it is durable. If the code does not make
the call that an entry answers, the execution has diverged.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from outlast.codec.exceptions import SEQ, decode_error
from outlast.errors import Diverged, Unrecordable
from outlast.errors.reasons import NO_JOURNAL, STUCK
from outlast.execution import calls, cancellation
from outlast.execution.call_table import describe
from outlast.execution.execution_state import EndKind, EndReason, ExecutionState
from outlast.execution.journal import PLACED
from outlast.execution.run_loop import RunTask
from outlast.execution.session_changes import REFUSALS
from outlast.execution.settlement import build_settlement
from outlast.store.commands import Record
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

CALLBACKS_MAX = 1_000_000
"""The limit of callbacks between two entries. A workflow that exceeds it waits for nothing and
spins."""
AFTER_STOP = frozenset({"retry", "resume", "decision"})
"""Kinds of entries that restart a run. Its time does not count the seconds before them."""
SLICE = 200
"""The number of entries to replay before the host loop gets its turn."""


class UnreadableEntry(Diverged):
    """A journal that cannot be read.

    The code did not diverge, so the message points to the journal.
    """

    explained_as = "Diverged"

    def __str__(self) -> str:
        return f"{NO_JOURNAL}: {self.recorded}"


def deliver_pending(execution: RunExecution) -> None:
    """Deliver entries until none is pending, the workflow has ended, or the host loop is due.

    Raise Diverged if the code does not match the journal, spins, or waits for something that can
    never come.
    """
    pending = execution.writes.pending
    delivered = 0
    while True:
        if not execution.loop.pump(CALLBACKS_MAX):
            raise execution.diverge(
                "a workflow that awaits something",
                f"more than {CALLBACKS_MAX:,} callbacks without waiting",
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
        if execution.sync_thread is not None and execution.sync_thread.busy:
            return
        if not pending:
            break
        if delivered >= SLICE:
            execution.host.call_soon(execution.advance)
            return
        _deliver(execution, pending.popleft())
        delivered += 1
    if execution.state is ExecutionState.REPLAYING:
        _catch_up(execution)
    elif not (
        execution.steps.tasks
        or execution.calls.awaited
        or execution.clock.has_timers
        or execution.mailbox.waiting
        or pending
    ):
        raise execution.diverge(
            "a run with something to wait for",
            "something that can never come: no step, timer, message or child is in flight, and a "
            "lock, event or queue that is shared with other runs or with steps cannot "
            "wake a workflow",
        )


def _deliver(execution: RunExecution, entry: Entry | Record) -> None:
    execution.clock.advance(entry.at, after_stop=entry.kind in AFTER_STOP)
    execution.writes.delivered(entry.at)
    with execution.loop.opened():
        if entry.kind in PLACED:
            _answer(execution, entry)
        elif entry.kind == "intent":
            _check_intent(execution, entry)
        elif entry.kind == "fired":
            execution.calls.timer_fired()
            handle = execution.clock.take_fired(entry.key)
            if handle is not None:
                execution.loop.ready.append(handle)
        elif entry.kind == "message":
            execution.mailbox.deliver(int(entry.value or 0), entry.seq)
        elif entry.kind == "cancel":
            cancellation.cancel_main(execution, entry)
    if execution.calls.blocking_entries and execution.calls.unblock(entry.seq):
        execution.host.call_soon(_start_deferred, execution)


def _asked(execution: RunExecution) -> str:
    """Describe the calls that the code has made instead of the one that an entry answers."""
    calls = [str(site) for site in execution.calls.sites.values()]
    more = f" and {len(calls) - 3} more" if len(calls) > 3 else ""
    return (", ".join(calls[:3]) + more) if calls else "nothing more"


def _answer(execution: RunExecution, entry: Entry | Record) -> None:
    call_site = execution.calls.answered(entry.key)
    if call_site is None or call_site.kind != entry.kind:
        raise execution.diverge(describe(entry), _asked(execution))
    if call_site.effect is not None:
        call_site.effect.text = entry.value
    if execution.state is ExecutionState.REPLAYING and entry.kind == "step":
        execution.trace.step_replayed()
    if call_site.messages and not entry.asked and call_site.effect is None:
        # The call had ended, but the cancellation came first.
        call_site.value = None
        call_site.error = call_site.cancelled_error()
    elif call_site.value is None and call_site.error is None:
        if entry.error is not None:
            call_site.error = decode_error(entry.error, call_site.errors)
            call_site.error.__dict__[SEQ] = entry.seq
            execution.trace.call_failed(entry.seq, entry.key)
        elif entry.value is not None and call_site.codec is not None:
            try:
                call_site.value = call_site.codec().decode(entry.value)
            except Unrecordable as error:
                raise execution.diverge(
                    describe(entry), f"a result of another type: {error}"
                ) from error
            except REFUSALS as refused:
                call_site.error = refused
                refused.__dict__[SEQ] = entry.seq
                execution.trace.call_failed(entry.seq, entry.key)
    call_site.delivered = True
    call_site.stop = None
    call_site.wake()


def _check_intent(execution: RunExecution, entry: Entry | Record) -> None:
    """Raise Diverged if an intent belongs to no effect that the workflow has called.

    The workflow does not see intents.
    """
    call_site = execution.calls.sites.get(entry.key)
    if call_site is None or call_site.effect is None or call_site.args != entry.args:
        raise execution.diverge(describe(entry), _asked(execution))


def _catch_up(execution: RunExecution) -> None:
    """Switch from replay to live execution at the end of the journal.

    Timers that came due in the meantime fire first, since they may cancel calls that would start
    now.
    """
    execution.go_live()
    _count_saved(execution)
    for key in execution.clock.go_live():
        execution.clock.fire(key)
        execution.calls.block_until(execution.writes.seq)
    cancellation.check(execution)
    if execution.row.deadline is not None and execution.row.deadline <= execution.clock.now():
        cancellation.check_deadline(execution)
    if not execution.calls.is_blocked:
        execution.host.call_soon(_start_deferred, execution)


def _count_saved(execution: RunExecution) -> None:
    """Update metrics at the end of replay.

    They count the reused results, and the cost that a run saved after a death or an interruption.
    """
    # The journal of a run that only woke up may end like this too. Its row shows neither an
    # interruption nor deaths.
    came_back = execution.row.interrupted is not None or execution.row.deaths_in_a_row > 0
    replayed = execution.trace.take_replayed()
    cost = execution.trace.cost
    if replayed:
        execution.services.metrics.replayed(execution.workflow.name, replayed)
    if cost is not None and cost.is_cut and came_back:
        execution.services.totals.add_saved(cost.kept)


def _start_deferred(execution: RunExecution) -> None:
    if execution.end_reason is not None:
        return
    calls.start_deferred(execution)
    execution.clock.arm_all()
    cancellation.watch_deadline(execution)
    if execution.mailbox.waiting:
        execution.poll_messages()
    execution.advance()


def _finish(execution: RunExecution, main: RunTask) -> None:
    """End the run after its workflow has returned, raised or made a refused call.

    Raise Diverged if the journal has entries that the workflow did not ask for. A compensation that
    raised parks the run.
    """
    if execution.undoing and not main.cancelled() and main.exception() is not None:
        why = (
            f"{STUCK}it cannot be compensated ({main.exception()!r}). "
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
        entry for key, entry in execution.journal.placed.items() if key not in execution.calls.sites
    ]
    if left:
        raise execution.diverge(describe(left[0]), asked)
    for entry in execution.writes.pending:
        if entry.kind == "intent" and entry.key not in execution.calls.sites:
            raise execution.diverge(describe(entry), asked)
    if execution.state is ExecutionState.REPLAYING:
        _count_saved(execution)
    settlement = build_settlement(execution, main)
    execution.finish_workflow(EndReason.returned(), settlement)
