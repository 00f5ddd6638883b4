"""How a run leaves this process before it has ended: given back because it only waits, because of a drain, or because others must go on with
it; parked because a person must decide."""

from __future__ import annotations

import logging
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from outlast.errors import Evicted
from outlast.replay.dealings import UNDO
from outlast.store.rows import NEVER
from outlast.telemetry.values import cut
from outlast.values.reasons import STUCK, UNKNOWN

if TYPE_CHECKING:
    from outlast.replay.life import Life

log = logging.getLogger("outlast.replay")


class Rest(NamedTuple):
    """What a run waits for that has nothing under way."""

    due: float
    names: tuple[str, ...]
    children: tuple[str, ...]
    entry: int
    """The number of its last entry."""
    seen: int
    """The number of the last message it knows."""


def leave(life: Life, why: str) -> None:
    """In a drain: give the run back if nothing of it is under way. What it waits for is not an interruption."""
    threads = life.threads or (life.thread is not None and life.thread.busy)
    busy = life.executing() or threads or life.inner or life.writing or life.pending or life.units
    if life.over is None and not busy and life.unknown:
        park_if_idle(life)
    elif life.over is None and not busy:
        rest = None if life.checkpointed else what_it_waits_for(life, children_too=True)
        if rest is not None and rest.children and not life.claimed:
            # There may be no fleet that takes the children: whoever starts the parent again must have it at once.
            rest = rest._replace(due=life.now())
        life.resting = rest
        life.evict(Evicted("it waits" if life.resting is not None else f"drain: {why}"))


def what_it_waits_for(life: Life, *, children_too: bool = False) -> Rest | None:
    """What the run waits for, if nothing of it is under way here: it need not be in anybody's hands then.

    Not while a child of it executes here, unless that is given back too.
    """
    busy = life.over is not None or life.replaying or life.writing or life.pending or life.deferred
    cancelling = life.cancelling is not None or life.cancel_asked
    if busy or cancelling or life.threads or (life.thread is not None and life.thread.busy):
        return None
    if life.unknown or life.mail.has_news:
        return None
    called = [place for place in life.places.values() if place.coro is None]
    waiting = [body.due for body in life.bodies.values() if body is not None and body.due is not None]
    children = tuple(place.child for place in called if place.child is not None)
    here = any(child in life.house.lives for child in children) and not children_too
    if not len(called) == len(children) + len(waiting) == len(life.bodies) or here:
        return None
    due = min(life.timers.next(), NEVER if life.row.deadline is None else life.row.deadline, *waiting)
    if due < NEVER or life.mail.waiting or children:
        return Rest(due, life.mail.waiting, children, life.seq, life.mail.last)
    return None


def cannot_tell(life: Life, key: str, why: str) -> None:
    """Only a person can say what came of an effect. The run is parked when nothing else of it executes."""
    life.unknown[key] = why
    if key.startswith(UNDO) and not _is_of_children(life, key):
        life.house.meters.compensation("failed")
    characters = life.house.log_values
    said = f": {cut(why, characters)}" if characters else f" (`outlast show {quote(life.id)}` says why)"
    log.warning("effect %s of run %s is unknown%s", key, life.id, said, extra=life.facts(key))
    life.host.call_soon(park_if_idle, life)


def park_if_idle(life: Life) -> None:
    under_way = (
        life.executing() or life.threads or (life.thread is not None and life.thread.busy) or life.inner
    )
    deferred = life.deferred and not life.house.draining  # in a drain that is another life's
    written = not (life.writing or life.pending or deferred or life.replaying)
    if life.over is None and written and not under_way and life.unknown:
        life.evict(parked(_what_is_unknown(life)))


def _what_is_unknown(life: Life) -> str:
    """For the person who has to decide."""
    lines = [f"{key}{_which(life, key)}: {why}" for key, why in life.unknown.items()]
    stuck = all(key.startswith(UNDO) for key in life.unknown)
    # What a unit could not undo stops a run that has not ended: there is nothing to retry.
    again = "retry" if life.undoing else "resume"
    dealt = [life.journal.dealings.get(key) for key in life.unknown]
    can = not life.undoing and any(one is not None and one.compensation is not None for one in dealt)
    compensate = ", or `--compensate`" if can else ""
    only = next(iter(life.unknown)) if len(life.unknown) == 1 else None
    effect = "EFFECT" if only is None else f"{only}{_which(life, only)}"
    if all(_is_of_children(life, key) for key in life.unknown):
        return f"{STUCK}{' '.join(lines)} Say `outlast {again} {life.id}` then."
    ways = (
        f"`outlast {again} {quote(life.id)}` to try again, or, if it was done by hand, `outlast decide {quote(life.id)} {effect} --happened null`"
        if stuck
        else f"`outlast decide {quote(life.id)} {effect} --happened RESULT` or `--did-not`{compensate}"
    )
    return f"{STUCK if stuck else UNKNOWN}{' '.join(lines)} Say {ways}."


def _is_of_children(life: Life, key: str) -> bool:
    of = life.journal.dealings.get(key.removeprefix(UNDO))
    return key.startswith(UNDO) and (of is None or of.kind == "child")


def _which(life: Life, key: str) -> str:
    """Which of several intents at a place is meant: who decides must say so."""
    dealing = life.journal.dealings.get(key)
    return f" --intent {dealing.intent}" if dealing is not None and dealing.tried_anew else ""


def give_back(life: Life, why: str, delay: float) -> None:
    """This process cannot go on with the run; another may."""
    log.warning("run %s is given back: %s", life.id, why, extra=life.facts())
    life.delay = delay
    life.evict(Evicted(why))


def parked(why: str) -> Evicted:
    """The end of a life whose run waits for a person."""
    evicted = Evicted(why)
    evicted.parked = True
    return evicted
