"""Show a run's effects to people: what happened, what is unknown or undone, and how to decide."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from outlast.cli.grid import Cell, Column, table
from outlast.cli.hints import becomes, command, waits_for_a_person
from outlast.cli.text import moment, one_line, recorded, recorded_error, safe, short, span
from outlast.codec.exceptions import CANCELLED
from outlast.engine.budget_store import budget_name
from outlast.engine.effect_text import is_default_name
from outlast.engine.journal_view import History
from outlast.errors.sentences import stopped
from outlast.execution.effects_from_journal import UNDO, EffectLog, EffectRecord
from outlast.settings import Settings
from outlast.store.rows import RunRow

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
    by = "" if is_default_name(name) else f"by {name}"
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


def to_decide(history: History, store: str | None, value_width: int | None) -> Iterator[str]:
    """Yield the commands with which a person decides each effect whose outcome is unknown."""
    row = history.row
    for one in history.undecided:
        number = ("--intent", str(one.intent)) if one.acts > 1 or one.tried_again else ()

        def decide(*options: str, place: str = one.place, number: tuple[str, ...] = number) -> str:
            line = command("decide", row.id, place, *options, *number, store=store)
            return f"    {line.strip('`')}"

        since = f", open since {moment(one.at)}" if one.at else ""
        yield f"To decide {safe(one.place)} (intent {one.intent}{since}):"
        yield f"  Its key is {safe(one.key)}."
        yield f"  Its arguments are {recorded(one.arguments, value_width)}."
        if one.place.startswith(UNDO):
            yield "  If it was done, by hand or by the run:"
            yield decide("--happened", "null")
            yield "  If it was not done, and should be tried again:"
            yield decide("--did-not")
            continue
        yield "  If it happened, with its result as JSON:"
        yield decide("--happened", "RESULT")
        yield (
            "  If it did not happen, and needs no compensation:"
            if row.undoing is not None
            else "  If it did not happen, and should be tried again:"
        )
        yield decide("--did-not")
        if one.compensation is not None and row.undoing is None:
            yield "  To compensate it, and the rest of the run:"
            yield decide("--compensate")


def to_raise(history: History, store: str | None) -> Iterator[str]:
    """Yield the command with which a person raises each budget that the run waits for."""
    for id, asked in history.questions.items():
        same = [one for one in history.questions if budget_name(one) == budget_name(id)]
        budget = id if len(same) > 1 else budget_name(id)
        line = command(
            "decide", history.row.id, f"budget:{budget}", "--limit", "NAME=AMOUNT", store=store
        )
        yield f"To raise budget {safe(id)} ({one_line(asked)}):"
        yield f"    {line.strip('`')}"


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


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else endings.get(number % 10, 'th')}"
