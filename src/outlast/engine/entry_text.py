"""Describe what an entry of a run's journal means."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.codec.documents import value_of
from outlast.codec.readable import recorded, recorded_error, short, span
from outlast.codec.text import one_line, safe
from outlast.engine.death_view import EndOfExecution
from outlast.engine.effect_text import (
    Description,
    Tone,
    cost_of,
    describe_caller,
    describe_effect,
)
from outlast.engine.journal_view import History
from outlast.engine.session_text import describe_session_call, is_refused
from outlast.execution.call_site import child_id
from outlast.execution.compensation import CHILDREN
from outlast.execution.effects_from_journal import UNDO
from outlast.execution.journal import POSTPONED
from outlast.settings import Settings
from outlast.store.rows import Entry, RunRow

TEXT_MAX = 100
"""How many characters are kept of recorded values that are not shown on a screen."""


def describe_entry(entry: Entry, history: History, width: int | None, began: float) -> Description:
    """Return what an entry says, and how to show it. `began` is when the run started."""
    value = value_of(entry.value) if entry.kind not in ("step", "child", "inner") else None
    facts = value if isinstance(value, dict) else {}
    if entry.key == CHILDREN and entry.error is None:
        return (
            "its children have ended" if history.has_children else "no children to wait for"
        ), Tone.PLAIN
    if (of_effect := describe_effect(entry, facts, history, width)) is not None:
        if entry.seq in history.cut_off:
            worker = one_line(history.cut_off[entry.seq])
            return f"{of_effect[0]}; worker {worker} died before its outcome was recorded", Tone.BAD
        return of_effect
    if entry.kind == "attempt" and (entry.args or "").startswith(POSTPONED):
        due = ""
        if isinstance(value, (int, float)) and value > entry.at:
            due = f"; continues at +{span(value - began)}"
        return f"waits for {one_line(entry.args or '').removeprefix(POSTPONED)}{due}", Tone.HISTORY
    if entry.kind == "attempt":
        error = recorded_error(entry.error, width) if entry.error else ""
        due = f"; retry at +{span(value - began)}" if isinstance(value, (int, float)) else ""
        return (
            f"attempt {entry.attempt} failed{_took(entry)}{cost_of(entry)}: {error}{due}",
            Tone.HISTORY,
        )
    if entry.kind == "message":
        message = history.mail.get(value) if isinstance(value, int) else None
        if message is None:
            return "received", Tone.PLAIN
        sender = "" if message.by is None else f" from {one_line(message.by)}"
        return f"received {recorded(message.value, width)}{sender}", Tone.PLAIN
    if entry.kind == "session" and entry.error is None:
        tone = Tone.HISTORY if is_refused(entry) else Tone.PLAIN
        return describe_session_call(entry, width), tone
    if entry.kind == "publish" and entry.error is None:
        return "published a value", Tone.PLAIN
    if entry.kind == "items":
        return f"processes {_fact(facts, 'total', width)} items", Tone.PLAIN
    if entry.kind == "fired":
        return "a timer fired", Tone.PLAIN
    if entry.kind == "cancel":
        return f"cancellation requested: {_fact(facts, 'why', width)}", Tone.HISTORY
    if entry.kind == "death":
        return _end_of_execution(facts, history.ends[entry.seq], history.row, width), Tone.BAD
    if entry.kind == "interruption":
        return _end_of_execution(facts, history.ends[entry.seq], history.row, width), Tone.HISTORY
    if entry.kind == "failure":
        return _fact(facts, "why", width), Tone.HISTORY
    if entry.kind == "child" and not entry.key.startswith(UNDO):
        return _child(entry, history.row, width)
    if entry.kind == "retry":
        start = history.cuts.get(entry.seq)
        redo = (
            f"entries from {start} on are void"
            if start is not None
            else "all recorded results are kept"
        )
        was = f"queued again{describe_caller(facts)} (was {_fact(facts, 'was', width)})"
        return f"{was}; {redo}", Tone.HISTORY
    if entry.kind == "resume":
        return (
            f"queued again{describe_caller(facts)} (was {_fact(facts, 'was', width)})",
            Tone.HISTORY,
        )
    tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
    took = f"{tries}{span(entry.seconds)}{cost_of(entry)}  " if entry.seconds is not None else ""
    asked = " (asked to stop)" if entry.asked else ""
    if entry.error is not None:
        return f"{took}{recorded_error(entry.error, width)}{asked}", Tone.BAD
    return f"{took}{recorded(entry.value, width)}{asked}", Tone.PLAIN


def _end_of_execution(
    facts: Mapping[str, object], end: EndOfExecution, row: RunRow, width: int | None
) -> str:
    """Return why a worker lost the run, and which worker took over."""
    why = _fact(facts, "why", width)
    if end.worker is not None:
        worker = f"worker {one_line(end.worker)}"
        # The reasons of a store begin with these words.
        after = why.removeprefix("its worker")
        why = f"{worker}{after}" if after != why else f"{why} ({worker})"
    return f"{why}; {end.text(row.status)}"


def _child(entry: Entry, row: RunRow, width: int | None) -> Description:
    """Return which child ended and how, and how to show it."""
    child = safe(child_id(row.id, entry.key, Settings.load({}).id_length_max))
    if entry.error is not None:
        return f"run {child} ended with {recorded_error(entry.error, width)}", Tone.BAD
    return f"run {child} returned {recorded(entry.value, width)}", Tone.PLAIN


def _fact(facts: Mapping[str, object], name: str, width: int | None) -> str:
    text = one_line(str(facts.get(name, "")))
    return text if width is None else short(text, width)


def _took(entry: Entry) -> str:
    return f" after {span(entry.seconds)}" if entry.seconds is not None else ""
