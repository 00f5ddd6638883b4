"""Describe what a journal's entries mean for the run's effects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from outlast.codec.cost import Cost
from outlast.codec.exceptions import LEFT_OPEN
from outlast.codec.readable import recorded, recorded_error, span
from outlast.codec.text import one_line
from outlast.engine.journal_view import History
from outlast.execution.effects_from_journal import UNDO
from outlast.store.rows import Entry


class Tone(Enum):
    """How to show an entry."""

    PLAIN = "plain"
    BAD = "bad"
    """An error, or a death."""
    HISTORY = "history"
    """A retry, a release, a refused change: events that people look for later."""


Description: TypeAlias = tuple[str, Tone]


def describe_effect(
    entry: Entry, facts: Mapping[str, Any], history: History, width: int | None
) -> Description | None:
    """Return what an entry says about an effect, and how to show it. None if it is about none."""
    undo = entry.key.startswith(UNDO)
    if entry.kind == "intent":
        by = _fact(facts, "effect")
        what = "" if not undo or is_default_name(by) else f"by {by}, "
        again = (
            " (the previous intent was recorded too late, so nothing was done under it)"
            if facts.get("again")
            else ""
        )
        return f"{what}key {_fact(facts, 'key')}{again}", Tone.PLAIN
    if entry.kind == "verify":
        if entry.args is not None:
            return "verify says that it did not happen", Tone.HISTORY
        doubt = recorded_error(entry.error, width) if entry.error else ""
        return f"verify could not tell ({entry.attempt or 1}): {doubt}", Tone.HISTORY
    if entry.kind == "decision":
        open_for = history.open_for.get(entry.seq)
        decided = f"decided{describe_caller(facts) or ' by hand'}"
        if open_for is not None:
            decided += f" after being unknown for {span(open_for)}"
        if facts.get("what") == "did_not":
            return f"{decided}: it did not happen", Tone.HISTORY
        following = history.by_seq.get(entry.seq + 1)
        if following is not None and following.kind == "undoing":
            given = str(facts.get("value"))
            with_result = (
                "" if given == "null" else f", as if it had happened with {recorded(given, width)}"
            )
            return f"{decided}: compensate it{with_result}", Tone.HISTORY
        return (
            f"{decided}: it happened, with {recorded(str(facts.get('value')), width)}",
            Tone.HISTORY,
        )
    if entry.kind == "undoing":
        return f"compensation begins; the run will end as {verdict(facts, width)}", Tone.HISTORY
    if entry.kind == "compensation":
        given = recorded(str(facts.get("arguments", "")), width)
        return f"to compensate it: {_fact(facts, 'effect')}, with {given}", Tone.PLAIN
    if entry.kind == "child" and undo and entry.error is None:
        return "undone", Tone.PLAIN
    if entry.key in history.effects:
        return _outcome(entry, undo, width)
    return None


def _outcome(entry: Entry, undo: bool, width: int | None) -> Description | None:
    error = recorded_error(entry.error, width) if entry.error else ""
    if entry.kind == "step":
        tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
        took = (
            f" ({tries}{span(entry.seconds)}{cost_of(entry)})" if entry.seconds is not None else ""
        )
        if entry.error == LEFT_OPEN:
            return "left open: whether it happened is not known", Tone.BAD
        if entry.value is None:
            return f"did not happen: {error}", Tone.BAD
        if entry.error is not None:
            return f"happened{took}, but: {error}", Tone.BAD
        result = "" if undo and entry.value == "null" else f": {recorded(entry.value, width)}"
        return f"{'undone' if undo else 'happened'}{took}{result}", Tone.PLAIN
    if entry.kind == "attempt" and entry.error is None:
        return "not executed: its worker was shutting down", Tone.HISTORY
    if entry.kind == "attempt":
        known = "did not happen" if entry.args is not None else "failed, and may have happened"
        return f"attempt {entry.attempt} {known}{cost_of(entry)}: {error}", Tone.HISTORY
    return None


def verdict(facts: Mapping[str, Any], width: int | None) -> str:
    """Return a verdict as text, from the facts of its entry."""
    error = facts.get("error")
    reason = facts.get("reason")
    why = recorded_error(str(error), width) if error else one_line(str(reason)) if reason else ""
    return one_line(str(facts.get("status", "?"))) + (f": {why}" if why else "")


def describe_caller(facts: Mapping[str, object]) -> str:
    """Return who requested what an entry records, as " by NAME", or "" if that is unknown."""
    by = facts.get("by")
    return f" by {one_line(by)}" if isinstance(by, str) else ""


def cost_of(entry: Entry) -> str:
    cost = Cost.read(entry.cost)
    return f", {cost}" if cost else ""


def _fact(facts: Mapping[str, Any], name: str) -> str:
    return one_line(str(facts.get(name, "")))


def is_default_name(compensation: str) -> bool:
    """Return whether a compensation has the default name of a ready-made effect: "undo NAME"."""
    return compensation.startswith("undo ")


# -- what to do
