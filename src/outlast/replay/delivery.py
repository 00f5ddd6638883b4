"""Delivering: entries are handed to the run one at a time, and it settles in between; first those of the journal, then each that has
become durable. What the code asks for meanwhile must be what an entry is about, else the life has diverged."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from outlast.errors import Evicted, Unrecordable, VersionConflict
from outlast.replay import ending, leaving, requests
from outlast.replay.journal import PLACED
from outlast.replay.loop import RunTask
from outlast.replay.unit import UNIT
from outlast.store.rows import Entry
from outlast.store.verbs import Record
from outlast.values.cost import UNITS_MAX
from outlast.values.exceptions import SEQ, decode_error
from outlast.values.reasons import STUCK

if TYPE_CHECKING:
    from outlast.replay.life import Life

CALLBACKS_MAX = 1_000_000
"""Callbacks between two entries: a workflow that takes more does not wait for anything, it spins."""
SLICE = 200
"""Entries replayed before the host's loop gets its turn."""


def deliver_pending(life: Life) -> None:
    """Until nothing is pending, the workflow has ended, or the host's loop is to have its turn. Diverged if that cannot go well."""
    delivered = 0
    while True:
        if not life.loop.pump(CALLBACKS_MAX):
            raise life.diverge(
                "a workflow that waits", f"more than {CALLBACKS_MAX:,} callbacks without waiting"
            )
        if life.refused is not None and life.main is not None and life.verdict is None:
            _finish(life, life.main)
            return
        if life.over is not None or life.main is None:
            return
        if life.main.done():
            _finish(life, life.main)
            return
        if life.thread is not None and life.thread.busy:
            return
        if not life.pending:
            break
        if delivered >= SLICE:
            life.host.call_soon(life.advance)
            return
        _deliver(life, life.pending.popleft())
        delivered += 1
    if life.replaying:
        _catch_up(life)
    elif not (life.bodies or _under_way(life) or life.timers or life.mail.waiting or life.pending):
        raise life.diverge(
            "a run with something to wait for",
            "something that can never come: no step, timer, message or child is under way, and a lock, event or queue "
            "that is shared with other runs or with steps cannot wake a workflow",
        )


def _under_way(life: Life) -> bool:
    return any(place.coro is None for place in life.places.values())


def _deliver(life: Life, entry: Entry | Record) -> None:
    if entry.kind in ("retry", "resume", "decision"):
        life.gap += max(0.0, entry.at - life.wall)
    life.wall = max(life.wall, entry.at)
    life.time = life.wall - life.gap
    life.last_at = max(life.last_at, life.wall)
    life.loop.open = True
    try:
        if entry.kind in PLACED:
            _answer(life, entry)
        elif entry.kind == "intent":
            _check_intent(life, entry)
        elif entry.kind == "fired":
            life.asked_for += 1
            handle = life.timers.fired(entry.key)
            if handle is not None:
                # Rounding must not make it fire early: a deadline of anyio would be set once more.
                life.time = max(life.time, handle.when())
                life.loop.ready.append(handle)
        elif entry.kind == "message":
            life.mail.deliver(int(entry.value or 0), entry.seq)
        elif entry.kind == "cancel":
            requests.cancel_main(life, entry)
    finally:
        life.loop.open = False
    if entry.seq in life.first:
        life.first.discard(entry.seq)
        if not life.first:
            life.host.call_soon(_start_deferred, life)


def _asked(life: Life) -> str:
    """What the code has called instead of what an entry is about."""
    calls = [str(place) for place in life.places.values()]
    more = f" and {len(calls) - 3} more" if len(calls) > 3 else ""
    return (", ".join(calls[:3]) + more) if calls else "nothing more"


def _answer(life: Life, entry: Entry | Record) -> None:
    place = life.places.pop(entry.key, None)
    life.journal.placed.pop(entry.key, None)
    if place is None or place.kind != entry.kind:
        raise life.diverge(describe(entry), _asked(life))
    if place.errand is not None:
        place.text = entry.value
    if life.replaying and entry.kind == "step":
        life.replayed += 1
    if place.cancelled and not entry.asked and place.errand is None:
        # It had ended, but the cancellation was first.
        place.value, place.error = None, place.cancelled_error()
    elif place.value is None and place.error is None:
        if entry.error is not None:
            place.error = decode_error(entry.error)
            place.error.__dict__[SEQ] = entry.seq
            life.raised[entry.seq] = entry.key
        elif entry.value is not None and place.codec is not None:
            try:
                place.value = place.codec().decode(entry.value)
            except Unrecordable as error:
                raise life.diverge(describe(entry), f"a result of another type: {error}") from error
            except VersionConflict as refused:
                place.error = refused
                refused.__dict__[SEQ] = entry.seq
                life.raised[entry.seq] = entry.key
    place.delivered, place.stop = True, None
    place.wake()


def _check_intent(life: Life, entry: Entry | Record) -> None:
    """It changes nothing for the workflow, but must be one of its effects."""
    place = life.places.get(entry.key)
    if place is None or place.errand is None or place.args != entry.args:
        raise life.diverge(describe(entry), _asked(life))


def _catch_up(life: Life) -> None:
    """The journal is exhausted. What came due meanwhile goes first: it may cancel what would start now."""
    life.replaying = False
    _count_saved(life)
    for key in life.timers.overdue():
        life.timers.fire(key)
        life.first.add(life.seq)
    requests.check(life)
    if life.row.deadline is not None and life.row.deadline <= life.now():
        requests.deadline_due(life)
    if not life.first:
        life.host.call_soon(_start_deferred, life)


def _count_saved(life: Life) -> None:
    """The replay is over: what a death or an interruption cut off goes on from here, and this much was not spent again."""
    # One that only woke up may have a journal that ends like this too, but was neither elevated nor suspected.
    came_back = life.row.interrupted is not None or life.row.deaths_in_a_row > 0
    if life.replayed:
        life.house.meters.replayed(life.workflow.name, life.replayed)
        life.replayed = 0
    if life.account is not None and life.account.is_cut and came_back:
        life.house.saved = life.house.saved.plus(life.account.kept, UNITS_MAX)


def _start_deferred(life: Life) -> None:
    if life.over is not None:
        return
    deferred, life.deferred = life.deferred, []
    for place in deferred:
        assert place.context is not None
        if not life.may_start(place.context.get(UNIT)):
            life.deferred.append(place)
        elif not place.delivered:
            place.context.run(life.launch, place)
    life.timers.arm_all()
    if life.row.deadline is not None and life.deadline is None:
        requests.watch_deadline(life)
    if life.mail.waiting:
        life.house.post.look_for(life)
    life.advance()


def _finish(life: Life, main: RunTask) -> None:
    """The workflow's function has returned, raised or made a call that was refused: the run ends,
    unless the journal says it cannot have."""
    if life.undoing and not main.cancelled() and main.exception() is not None:
        life.over = leaving.parked(
            f"{STUCK}it cannot be undone ({main.exception()!r}). Fix that, then run `outlast retry {quote(life.id)}`."
        )
        return
    asked = f"the end of {life.workflow.name}" if life.refused is None else f"a refused call: {life.refused}"
    left = [entry for key, entry in life.journal.placed.items() if key not in life.places]
    if left:
        raise life.diverge(describe(left[0]), asked)
    for entry in life.pending:
        if entry.kind == "intent" and entry.key not in life.places:
            raise life.diverge(describe(entry), asked)
    if life.replaying:
        _count_saved(life)
    life.verdict = ending.judge(life, main)
    life.over = Evicted("the run has ended")


def describe(entry: Any) -> str:
    """An entry at a place, as a place describes itself."""
    return f"{entry.kind} {entry.key}({entry.args or ''})"
