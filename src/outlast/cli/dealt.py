"""Effects for people: what a run has done to the outside world, what of it is not known or was undone, and how to decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from outlast.cli.grid import Cell, Column, grid
from outlast.cli.hints import becomes, command, verdict, waits_for_a_person
from outlast.cli.history import History
from outlast.cli.text import one_line, recorded, recorded_error, safe, short, span
from outlast.replay.dealings import UNDO, Dealing, Dealings
from outlast.store.rows import Entry, RunRow
from outlast.values.cost import Cost

EFFECTS = (
    Column("EFFECT"), Column("STATE"), Column("WHEN", right=True), Column("KEY"), Column("RESULT"), Column("UNDO")
)  # fmt: skip
STATES = {
    "happened": "green",
    "undone": "magenta",
    "open": "yellow",
    "unknown": "red",
}
RESULT_LENGTH = 40
PLACE_LENGTH = 60
BAD, HISTORY = "red", "yellow"


# -- the timeline


def told(
    entry: Entry, facts: Mapping[str, Any], history: History, room: int | None
) -> tuple[str, str] | None:
    """What an entry says of an effect, and its style. None: it is of something else."""
    undo = entry.key.startswith(UNDO)
    if entry.kind == "intent":
        what = f"about to be undone by {_fact(facts, 'effect')}" if undo else "about to be done"
        return f"{what}, key {_fact(facts, 'key')}", ""
    if entry.kind == "verify":
        if entry.args is not None:
            return "verify says that it did not happen", HISTORY
        doubt = recorded_error(entry.error, room) if entry.error else ""
        return f"verify could not tell ({entry.attempt or 1}): {doubt}", HISTORY
    if entry.kind == "decision":
        if facts.get("what") == "did_not":
            return "somebody decided: it did not happen", HISTORY
        return f"somebody decided: it happened, with {recorded(str(facts.get('value')), room)}", HISTORY
    if entry.kind == "undoing":
        return f"from here on it is undone, to end as {verdict(facts, room)}", HISTORY
    if entry.kind == "compensation":
        given = recorded(str(facts.get("arguments", "")), room)
        return f"if it is undone: {_fact(facts, 'effect')}, with {given}", ""
    if entry.kind == "child" and undo and entry.error is None:
        return "its children have ended" if entry.key == f"{UNDO}(children)" else "undone", ""
    if entry.key in history.effects:
        return _outcome(entry, undo, room)
    return None


def _outcome(entry: Entry, undo: bool, room: int | None) -> tuple[str, str] | None:
    error = recorded_error(entry.error, room) if entry.error else ""
    if entry.kind == "step":
        tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
        took = f" ({tries}{span(entry.seconds)}{cost_of(entry)})" if entry.seconds is not None else ""
        if entry.value is None:
            return f"did not happen: {error}", BAD
        if entry.error is not None:
            return f"happened{took}, but: {error}", BAD
        result = "" if undo and entry.value == "null" else f": {recorded(entry.value, room)}"
        return f"{'undone' if undo else 'happened'}{took}{result}", ""
    if entry.kind == "attempt" and entry.error is None:
        return "was not done yet: its worker was leaving", HISTORY
    if entry.kind == "attempt":
        known = "did not happen" if entry.args is not None else "failed, and may have happened"
        return f"attempt {entry.attempt} {known}{cost_of(entry)}: {error}", HISTORY
    return None


# -- the table


def effect_lines(history: History, began: float, room: int | None) -> list[Text]:
    """A line for each effect, in the order in which they were first meant."""
    dealings = history.dealings
    if dealings is None:
        return [Text("Its effects cannot be read: the journal is damaged, or another version's.", BAD)]
    own = [one for one in reversed(list(dealings)) if one.intent or one.kind == "compensation"]
    undone = sorted(one.undone for one in own if one.undone is not None)
    rows = [_row(one, dealings, history, undone, began, room) for one in own]
    return grid(EFFECTS, rows)


def _row(
    one: Dealing, dealings: Dealings, history: History, undone: list[int], began: float, room: int | None
) -> list[Cell]:
    state = _state(one, history.row)
    error = (one.closed.error if one.closed is not None else None) or one.error
    result = recorded_error(error, None) if error else recorded(one.value, None)
    if one.kind == "compensation":
        result = f"{safe(one.effect)} with {recorded(one.arguments, None)}"
    at = one.at or (one.closed.at if one.closed is not None else began)
    times = f" ({one.acts} times)" if one.acts > 1 else ""
    return [
        Cell(short(safe(one.place), PLACE_LENGTH)),
        Cell(state, STATES.get(state, "")),
        Cell(f"+{span(at - began)}{times}"),
        Cell(safe(one.key) or "-"),
        Cell((result if room is None else short(result, RESULT_LENGTH)) or "-"),
        Cell(_undo(one, dealings.get(UNDO + one.place), history, undone, began)),
    ]


def _state(one: Dealing, row: RunRow) -> str:
    if one.undone is not None:
        return "undone"
    if one.kind == "compensation":
        return "registered"
    if one.open:
        return "unknown" if waits_for_a_person(row) else "open"
    return "happened" if one.happened else "did not happen" if one.closed is not None else "not yet"


def _undo(one: Dealing, undo: Dealing | None, history: History, undone: list[int], began: float) -> str:
    by = safe(one.effect if one.kind == "compensation" else one.compensation or "")
    if one.undone is not None:
        entry = history.by_seq.get(one.undone)
        when = f", at +{span(entry.at - began)}" if entry is not None else ""
        return f"{_ordinal(undone.index(one.undone) + 1)}{when}, by {by}"
    if undo is not None and undo.intent and not undo.happened:
        error = f": {recorded_error(undo.error, RESULT_LENGTH)}" if undo.error else ""
        return f"by {by}, under way" if not error else f"{by} failed {undo.raised or undo.acts} times{error}"
    return f"by {by}" if by and (one.happened or one.open) else "-"


# -- what to do


def to_decide(history: History, store: str | None) -> Iterator[str]:
    """What a person has to say of each effect that nobody else can tell of, as commands."""
    row = history.row
    for one in history.undecided:
        number = ("--intent", str(one.intent)) if one.acts > 1 else ()

        def say(*words: str, place: str = one.place, number: tuple[str, ...] = number) -> str:
            return command("decide", row.id, place, *words, *number, store=store)

        yield f"{safe(one.place)} (intent {one.intent}, key {safe(one.key)}):"
        if one.place.startswith(UNDO):
            yield f"  It was done, by hand or after all:  {say('--happened', 'null')}"
            yield f"  It was not, and is to be tried again:  {say('--did-not')}"
            continue
        yield f"  It happened, with this result (JSON):  {say('--happened', 'RESULT')}"
        yield f"  It did not, and is to be done again:  {say('--did-not')}"
        if one.compensation is not None and row.undoing is None:
            yield f"  Undo it, and the run with it:  {say('--compensate')}"


def standing(history: History) -> Iterator[str]:
    """How far a run that is being undone has come."""
    row, dealings = history.row, history.dealings
    if row.undoing is None:
        return
    yield f"It is being undone, newest first, to end as {becomes(row)}"
    if dealings is not None:
        left = len(dealings.undoable)
        yield f"{left} effect{'' if left == 1 else 's'} still to be undone."


def cost_of(entry: Entry) -> str:
    cost = Cost.read(entry.cost)
    return f", {cost}" if cost else ""


def _fact(facts: Mapping[str, Any], name: str) -> str:
    return one_line(str(facts.get(name, "")))


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else endings.get(number % 10, 'th')}"
