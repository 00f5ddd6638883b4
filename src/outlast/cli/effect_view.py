"""Show a run's effects to people: what happened, what is unknown or undone, and how to decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from outlast.cli.grid import Cell, Column, table
from outlast.cli.hints import becomes, command, verdict, waits_for_a_person
from outlast.cli.text import moment, one_line, recorded, recorded_error, safe, short, span
from outlast.codec.cost import Cost
from outlast.codec.exceptions import CANCELLED, LEFT_OPEN
from outlast.engine.journal_view import History
from outlast.errors.sentences import stopped
from outlast.execution.effects_from_journal import UNDO, EffectLog, EffectRecord
from outlast.settings import Settings
from outlast.store.rows import Entry, RunRow

EFFECTS = (
    Column("EFFECT"),
    Column("STATE"),
    Column("WHEN", right=True),
    Column("KEY", wide=True),
    Column("RESULT", least=10),
    Column("UNDO", least=26),
)
IN_UNITS = (*EFFECTS, Column("UNIT", least=10))
"""The columns when at least one effect was called in a unit."""
STATES = {
    "happened": "green",
    "undone": "magenta",
    "open": "yellow",
    "unknown": "red",
}
RESULT_LENGTH = 40
PLACE_LENGTH = 60
BAD = "red"
HISTORY = "yellow"


# -- the timeline


def told(
    entry: Entry, facts: Mapping[str, Any], history: History, room: int | None
) -> tuple[str, str] | None:
    """Return what an entry says about an effect, and its style; None if it is about none."""
    undo = entry.key.startswith(UNDO)
    if entry.kind == "intent":
        by = _fact(facts, "effect")
        what = "" if not undo or _says_nothing(by) else f"by {by}, "
        again = (
            " (the previous intent was recorded too late, so nothing was done under it)"
            if facts.get("again")
            else ""
        )
        return f"{what}key {_fact(facts, 'key')}{again}", ""
    if entry.kind == "verify":
        if entry.args is not None:
            return "verify says that it did not happen", HISTORY
        doubt = recorded_error(entry.error, room) if entry.error else ""
        return f"verify could not tell ({entry.attempt or 1}): {doubt}", HISTORY
    if entry.kind == "decision":
        open_for = history.open_for.get(entry.seq)
        decided = f"decided{by_words(facts) or ' by hand'}"
        if open_for is not None:
            decided += f" after being unknown for {span(open_for)}"
        if facts.get("what") == "did_not":
            return f"{decided}: it did not happen", HISTORY
        following = history.by_seq.get(entry.seq + 1)
        if following is not None and following.kind == "undoing":
            given = str(facts.get("value"))
            with_result = (
                "" if given == "null" else f", as if it had happened with {recorded(given, room)}"
            )
            return f"{decided}: compensate it{with_result}", HISTORY
        return f"{decided}: it happened, with {recorded(str(facts.get('value')), room)}", HISTORY
    if entry.kind == "undoing":
        return f"compensation begins; the run will end as {verdict(facts, room)}", HISTORY
    if entry.kind == "compensation":
        given = recorded(str(facts.get("arguments", "")), room)
        return f"to compensate it: {_fact(facts, 'effect')}, with {given}", ""
    if entry.kind == "child" and undo and entry.error is None:
        return "undone", ""
    if entry.key in history.effects:
        return _outcome(entry, undo, room)
    return None


def _outcome(entry: Entry, undo: bool, room: int | None) -> tuple[str, str] | None:
    error = recorded_error(entry.error, room) if entry.error else ""
    if entry.kind == "step":
        tries = f"attempt {entry.attempt}, " if (entry.attempt or 1) > 1 else ""
        took = (
            f" ({tries}{span(entry.seconds)}{cost_of(entry)})" if entry.seconds is not None else ""
        )
        if entry.error == LEFT_OPEN:
            return "left open: whether it happened is not known", BAD
        if entry.value is None:
            return f"did not happen: {error}", BAD
        if entry.error is not None:
            return f"happened{took}, but: {error}", BAD
        result = "" if undo and entry.value == "null" else f": {recorded(entry.value, room)}"
        return f"{'undone' if undo else 'happened'}{took}{result}", ""
    if entry.kind == "attempt" and entry.error is None:
        return "not executed: its worker was shutting down", HISTORY
    if entry.kind == "attempt":
        known = "did not happen" if entry.args is not None else "failed, and may have happened"
        return f"attempt {entry.attempt} {known}{cost_of(entry)}: {error}", HISTORY
    return None


# -- the table


def effect_lines(history: History, began: float, *, wide: bool) -> list[Text]:
    """Return one line per effect, in the order of their first intents. The caller indents them.

    Effects of the same name appear in the order of their calls.
    """
    effect_log = history.effect_log
    if effect_log is None:
        return [
            Text(
                "Its effects cannot be read: the journal is damaged, or from another version.", BAD
            )
        ]
    own = _in_order(
        [one for one in reversed(list(effect_log)) if one.intent or one.kind == "compensation"]
    )
    undone = sorted(one.undone for one in own if one.undone is not None)
    rows = [_row(one, effect_log, history, undone, began) for one in own]
    if not any(one.units for one in own):
        return table(EFFECTS, rows, wide=wide, indent=2)
    in_units = [[*row, Cell(_units(one) or "-")] for row, one in zip(rows, own, strict=True)]
    return table(IN_UNITS, in_units, wide=wide, indent=2)


def _units(one: EffectRecord) -> str:
    """Return the units that the effect was called in, outermost first."""
    return " > ".join(short(safe(str(name)), PLACE_LENGTH) for name in one.units)


def _in_order(own: list[EffectRecord]) -> list[EffectRecord]:
    """Put effects of the same name in the order of their calls.

    Concurrent calls may record their first intents in any order, but the numbers in their call
    sites follow the calls.
    """
    called: dict[str, list[tuple[int, EffectRecord]]] = {}
    for one in own:
        name, _, number = one.place.rpartition("#")
        called.setdefault(name, []).append((int(number) if number.isdecimal() else 0, one))
    turns = {name: iter(sorted(ones, key=lambda one: one[0])) for name, ones in called.items()}
    return [next(turns[one.place.rpartition("#")[0]])[1] for one in own]


def _row(
    one: EffectRecord,
    effect_log: EffectLog,
    history: History,
    undone: list[int],
    began: float,
) -> list[Cell]:
    state = _state(one, history.row)
    error = (one.closed.error if one.closed is not None else None) or one.error
    result = _raised(error, one) if error else recorded(one.value, None)
    if one.kind == "compensation":
        result = f"{safe(one.effect)} with {recorded(one.arguments, None)}"
    at = one.at or (one.closed.at if one.closed is not None else began)
    times = f" ({one.acts} times)" if one.acts > 1 else ""
    return [
        Cell(short(safe(one.place), PLACE_LENGTH)),
        Cell(state, STATES.get(state, "")),
        Cell(f"+{span(at - began)}{times}"),
        Cell(safe(one.key) or "-"),
        Cell(result or "-"),
        Cell(_undo(one, effect_log.get(UNDO + one.place), history, undone, began)),
    ]


def _state(one: EffectRecord, row: RunRow) -> str:
    if one.undone is not None:
        return "undone"
    if one.kind == "compensation":
        return "registered"
    if one.open and one.decision is not None:
        return "decided"
    if one.open:
        return "unknown" if waits_for_a_person(row) else "open"
    if one.left_open:
        return "open"
    if one.happened:
        return "happened"
    is_over = one.closed is not None or row.ended is not None or row.undoing is not None
    return "did not happen" if is_over else "not yet"


def _raised(error: str, one: EffectRecord) -> str:
    """Return what to show instead of a result. Module names are left to the timeline.

    A cancelled effect only shows "cancelled".
    """
    if error == CANCELLED:
        return "cancelled"
    name, colon, message = recorded_error(error, None).partition(":")
    return (
        ("no result: " if one.happened else "raised ") + name.rpartition(".")[2] + colon + message
    )


def _undo(
    one: EffectRecord, undo: EffectRecord | None, history: History, undone: list[int], began: float
) -> str:
    name = safe(one.effect if one.kind == "compensation" else one.compensation or "")
    by = "" if _says_nothing(name) else f"by {name}"
    if one.undone is not None:
        entry = history.by_seq.get(one.undone)
        when = f", at +{span(entry.at - began)}" if entry is not None else ""
        return f"{_ordinal(undone.index(one.undone) + 1)}{when}" + (f", {by}" if by else "")
    if undo is not None and undo.intent and not undo.happened:
        error = f": {recorded_error(undo.error, RESULT_LENGTH)}" if undo.error else ""
        if not error:
            return f"{by}, in flight" if by else "in flight"
        return f"{name if by else 'it'} failed {undo.raised or undo.acts} times{error}"
    return (by or "can be undone") if name and (one.happened or one.open) else "-"


def _says_nothing(compensation: str) -> bool:
    """Return whether a compensation has the default name of a ready-made effect: "undo NAME"."""
    return compensation.startswith("undo ")


# -- what to do


def to_decide(history: History, store: str | None, room: int | None) -> Iterator[str]:
    """Yield the commands with which a person decides each effect whose outcome is unknown."""
    row = history.row
    for one in history.undecided:
        number = ("--intent", str(one.intent)) if one.acts > 1 or one.tried_again else ()

        def say(*words: str, place: str = one.place, number: tuple[str, ...] = number) -> str:
            line = command("decide", row.id, place, *words, *number, store=store)
            return f"    {line.strip('`')}"

        since = f", open since {moment(one.at)}" if one.at else ""
        yield f"To decide {safe(one.place)} (intent {one.intent}{since}):"
        yield f"  Its key is {safe(one.key)}."
        yield f"  Its arguments are {recorded(one.arguments, room)}."
        if one.place.startswith(UNDO):
            yield "  If it was done, by hand or by the run:"
            yield say("--happened", "null")
            yield "  If it was not done, and should be tried again:"
            yield say("--did-not")
            continue
        yield "  If it happened, with its result as JSON:"
        yield say("--happened", "RESULT")
        yield (
            "  If it did not happen, and needs no compensation:"
            if row.undoing is not None
            else "  If it did not happen, and should be tried again:"
        )
        yield say("--did-not")
        if one.compensation is not None and row.undoing is None:
            yield "  To compensate it, and the rest of the run:"
            yield say("--compensate")


def still_open(history: History, now: float) -> Iterator[str]:
    """Yield until when each open act may be in flight, and what happens then.

    The margin is this environment's. A worker may have another.
    """
    row = history.row
    effect_log = history.effect_log
    if effect_log is None or row.ended is not None or row.status == "parked":
        return
    margin = Settings.load({}).effect_margin
    for one in effect_log.opened:
        if one.decision is not None or not isinstance(one.timeout, (int, float)):
            # A person has decided it, or the entry is damaged.
            continue
        since = max(one.at, one.ended) if one.threaded else one.at
        until = since + one.timeout + margin
        how_long = f"timeout {one.timeout:g} s + margin {margin:g} s"
        then = "Outlast verifies it, retries it if it is idempotent, or parks the run"
        if now < until:
            yield (
                f"{safe(one.place)} is open: it may be in flight until {moment(until)} "
                f"({how_long}). Then {then}."
            )
        else:
            yield (
                f"{safe(one.place)} is open: it may have been in flight until "
                f"{moment(until)} ({how_long}). Now {then}."
            )


def standing(history: History) -> Iterator[str]:
    """Yield how far the compensation of a run has come."""
    row = history.row
    effect_log = history.effect_log
    if row.undoing is None:
        return
    yield (
        f"Its effects are being compensated, newest first. It will end as {stopped(becomes(row))}"
    )
    if effect_log is not None:
        left = len(effect_log.undoable)
        yield f"{left} effect{'' if left == 1 else 's'} still to be compensated."


def by_words(facts: Mapping[str, object]) -> str:
    """Return who asked for what an entry records, as " by NAME"; "" if that is not known."""
    by = facts.get("by")
    return f" by {one_line(by)}" if isinstance(by, str) else ""


def cost_of(entry: Entry) -> str:
    cost = Cost.read(entry.cost)
    return f", {cost}" if cost else ""


def _fact(facts: Mapping[str, Any], name: str) -> str:
    return one_line(str(facts.get(name, "")))


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else endings.get(number % 10, 'th')}"
