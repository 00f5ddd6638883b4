"""Say in words what an entry of a run's journal means, for `outlast show`."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.cli.effect_view import by_words, cost_of, told
from outlast.cli.session_entries import is_refused, session_words
from outlast.cli.text import one_line, recorded, recorded_error, safe, short, span
from outlast.codec.documents import value_of
from outlast.engine.death_view import EndOfExecution
from outlast.engine.journal_view import History
from outlast.execution.call_site import child_id
from outlast.execution.compensation import CHILDREN
from outlast.execution.effects_from_journal import UNDO
from outlast.settings import Settings
from outlast.store.rows import Entry, RunRow

BAD = "red"
HISTORY = "yellow"


def entry_words(entry: Entry, history: History, room: int | None, began: float) -> tuple[str, str]:
    """Return what an entry says, and its style. `began` is when the run started."""
    value = value_of(entry.value) if entry.kind not in ("step", "child", "inner") else None
    facts = value if isinstance(value, dict) else {}
    if entry.key == CHILDREN and entry.error is None:
        return (
            "its children have ended" if history.has_children else "no children to wait for"
        ), ""
    if (of_effect := told(entry, facts, history, room)) is not None:
        if entry.seq in history.cut_off:
            worker = one_line(history.cut_off[entry.seq])
            return f"{of_effect[0]}; worker {worker} died before its outcome was recorded", BAD
        return of_effect
    if entry.kind == "attempt":
        error = recorded_error(entry.error, room) if entry.error else ""
        due = f"; retry at +{span(value - began)}" if isinstance(value, (int, float)) else ""
        return (
            f"attempt {entry.attempt} failed{_took(entry)}{cost_of(entry)}: {error}{due}",
            HISTORY,
        )
    if entry.kind == "message":
        message = history.mail.get(value) if isinstance(value, int) else None
        if message is None:
            return "received", ""
        sender = "" if message.by is None else f" from {one_line(message.by)}"
        return f"received {recorded(message.value, room)}{sender}", ""
    if entry.kind == "session" and entry.error is None:
        return session_words(entry, room), HISTORY if is_refused(entry) else ""
    if entry.kind == "publish" and entry.error is None:
        return "published a value", ""
    if entry.kind == "items":
        return f"processes {_fact(facts, 'total', room)} items", ""
    if entry.kind == "fired":
        return "a timer fired", ""
    if entry.kind == "cancel":
        return f"cancellation requested: {_fact(facts, 'why', room)}", HISTORY
    if entry.kind == "death":
        return _end_of_execution(facts, history.ends[entry.seq], room), BAD
    if entry.kind == "interruption":
        return _end_of_execution(facts, history.ends[entry.seq], room), HISTORY
    if entry.kind == "failure":
        return _fact(facts, "why", room), HISTORY
    if entry.kind == "child" and not entry.key.startswith(UNDO):
        return _child(entry, history.row, room)
    if entry.kind == "retry":
        start = history.cuts.get(entry.seq)
        redo = (
            f"entries from {start} on are void"
            if start is not None
            else "all recorded results are kept"
        )
        was = f"queued again{by_words(facts)} (was {_fact(facts, 'was', room)})"
        return f"{was}; {redo}", HISTORY
    if entry.kind == "resume":
        return f"queued again{by_words(facts)} (was {_fact(facts, 'was', room)})", HISTORY
    tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
    took = f"{tries}{span(entry.seconds)}{cost_of(entry)}  " if entry.seconds is not None else ""
    asked = " (asked to stop)" if entry.asked else ""
    if entry.error is not None:
        return f"{took}{recorded_error(entry.error, room)}{asked}", BAD
    return f"{took}{recorded(entry.value, room)}{asked}", ""


def _end_of_execution(facts: Mapping[str, object], end: EndOfExecution, room: int | None) -> str:
    """Return why a worker lost the run, and which worker took over."""
    why = _fact(facts, "why", room)
    if end.worker is not None:
        worker = f"worker {one_line(end.worker)}"
        # The reasons of a store begin with these words.
        after = why.removeprefix("its worker")
        why = f"{worker}{after}" if after != why else f"{why} ({worker})"
    return f"{why}; {end.words()}"


def _child(entry: Entry, row: RunRow, room: int | None) -> tuple[str, str]:
    """Return which child ended and how, and the style."""
    child = safe(child_id(row.id, entry.key, Settings.load({}).id_length_max))
    if entry.error is not None:
        return f"run {child} ended with {recorded_error(entry.error, room)}", BAD
    return f"run {child} returned {recorded(entry.value, room)}", ""


def _fact(facts: Mapping[str, object], name: str, room: int | None) -> str:
    text = one_line(str(facts.get(name, "")))
    return text if room is None else short(text, room)


def _took(entry: Entry) -> str:
    return f" after {span(entry.seconds)}" if entry.seconds is not None else ""
