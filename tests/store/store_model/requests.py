"""Asking something of a run: the contracts of `outlast.store.commands.requests`."""

import json

from outlast.store.commands import (
    DEPTH,
    EACH,
    ITEM,
    PARENT,
    STATUS,
    UNKNOWN,
    VERSION,
    Cancel,
    Decide,
    Refused,
    Resume,
    Retry,
    Send,
    UndoChild,
)
from outlast.store.rows import ENDED
from store_model.state import State


def send(model: State, command: Send, _):
    run = model.runs.get(command.id)
    if run is None:
        return UNKNOWN
    if run.workflow == ITEM:
        return Refused(STATUS, "item")
    if run.status in ENDED:
        return Refused(STATUS, run.status)
    if (command.name, command.message) not in run.mail:
        if command.messages_max is not None and len(run.mail) >= command.messages_max:
            return Refused(DEPTH, str(len(run.mail)))
        run.mail[command.name, command.message] = command.value
        if command.name in run.waits:
            model.wake(run)


def cancel(model: State, command: Cancel, _):
    run = model.runs.get(command.id)
    if run is None:
        return UNKNOWN
    if run.status in ENDED - {"dead"}:
        return Refused(STATUS, run.status)
    if run.undoing is not None:
        return Refused(STATUS, "undoing")
    if run.status in ("parked", "dead") and model.may_need_undo(run):
        model.begin_undo(run, _cancelled(run.cancel or command.why))
        return run.status
    run.cancel = run.cancel or command.why
    at_once = not run.started or run.status in ("parked", "dead")
    if at_once or (run.workflow == ITEM and run.worker is None):
        run.void("cancelled")
        run.ended, run.waits = model.now, ()
        model.wake_parent(run)
    else:
        run.due = min(run.due, model.now)
        if run.claimable():
            run.make_ready()
    return run.status


def retry(model: State, command: Retry, _):
    run = model.runs.get(command.id)
    allowed = (
        "failed",
        "cancelled",
        "dead",
        *(("parked",) if run is not None and run.undoing is not None else ()),
    )
    if run is not None and run.status in allowed and "retry" + command.token not in run.asked:
        refused = _parent_refuses(model, run, command.seen)
        if refused is not None:
            return refused
    return _requeue(model, command, allowed, "retry")


def _parent_refuses(model: State, run, seen):
    if run.parent is None or run.undoing is not None or run.workflow == EACH:
        return None
    parent = model.runs.get(run.parent)
    if parent is None:
        return Refused(PARENT, "gone")
    if parent.undoing is not None or parent.status in ENDED:
        return Refused(PARENT, "undoing" if parent.undoing is not None else parent.status)
    last = len(parent.journal)
    return Refused(VERSION, str(last)) if seen not in (None, last) else None


def resume(model: State, command: Resume, _):
    return _requeue(model, command, ("parked",), "resume", ("parked", "done"))


def decide(model: State, command: Decide, _):
    run = model.runs.get(command.id)
    is_repeat = run is not None and "decision" + command.token in run.asked
    if run is not None and run.status == "parked" and not is_repeat:
        if len(run.journal) != command.seen:
            return Refused(VERSION, str(len(run.journal)))
    outcome = _requeue(model, command, ("parked",), "decision")
    if outcome is None and command.verdict is not None and not is_repeat:
        model.begin_undo(run, command.verdict)
    return outcome


def _requeue(model: State, command, allowed, kind, of_each=()):
    run = model.runs.get(command.id)
    if run is None:
        return UNKNOWN
    if kind + command.token in run.asked:
        return None
    if run.status not in (of_each if run.workflow == EACH and of_each else allowed):
        return Refused(STATUS, run.status)
    run.void("queued")
    run.due, run.ended, run.deaths, run.value = model.now, None, 0, None
    run.cancel = None if kind == "retry" else run.cancel
    run.deaths_in_a_row = run.interruptions_in_a_row = run.failures = 0
    run.left = None
    run.waits, run.settled_by, run.token, run.lives = (), None, command.token, max(run.lives, 1)
    run.make_ready()
    run.asked.add(kind + command.token)
    run.append_mark(kind)


def undo_child(model: State, command: UndoChild, _):
    run = model.runs.get(command.id)
    if run is None or run.parent != command.parent:
        return UNKNOWN
    begun = run.started and run.undoing is None
    unheld = command.unheld and begun and run.status in ("queued", "waiting", "parked", "dead")
    if unheld or (run.status == "done" and model.may_need_undo(run)):
        model.begin_undo(run, _cancelled(command.why))
    return run.status


def _cancelled(why: str) -> str:
    return json.dumps(
        {"status": "cancelled", "value": None, "error": None, "reason": why, "failed_at": None}
    )
