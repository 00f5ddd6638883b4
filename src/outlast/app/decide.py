"""What a person says of an effect whose outcome nobody knows, and what effects a run has."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from outlast.errors import OutlastError, SettingsError, UnknownEffect, Unrecordable, WrongStatus
from outlast.replay.dealings import UNDO, Dealing, Dealings
from outlast.replay.errand import find
from outlast.store.damaged import legible
from outlast.store.protocol import whole_journal
from outlast.store.rows import RunRow
from outlast.store.verbs import STATUS, VERSION, Decide, Refused, verdict
from outlast.values.codec import encode_message

if TYPE_CHECKING:
    from outlast.app.house import House

NOT_SAID: Any = object()


def dealings_of(house: House, row: RunRow) -> tuple[Dealings, int]:
    """What a run has dealt in, and the number of its last entry. It reads the whole journal. StoreBroken if that cannot be read."""
    from outlast.replay.journal import Journal

    with legible(f"the journal of run {row.id!r}"):
        journal = Journal(whole_journal(house.store, row.pk))
    return journal.dealings, journal.last_seq


async def decide(
    house: House,
    row: RunRow,
    effect: str,
    *,
    happened: Any,
    did_not: bool,
    compensate: bool,
    result: Any,
    intent: int | None,
) -> None:
    if (happened is not NOT_SAID) + bool(did_not) + bool(compensate) != 1:
        raise SettingsError("say one of: happened=RESULT, did_not=True, compensate=True.")
    if row.status != "parked":
        raise WrongStatus(
            f"run {row.id!r} is {row.status}: only of a parked run can it be decided what came of an effect."
        )
    dealings, last = await house.read(dealings_of, house, row)
    dealing = choose(row.id, dealings, effect)
    _check_seen(row.id, dealing, intent)
    text = "null" if did_not else encode_message(result if compensate else happened)
    house.check_size(text, f"the result of effect {effect}")
    if not did_not and not (compensate and result is None):  # without a result it is undone without one
        _check_result(dealing, text)
    if did_not and not dealing.intent:
        raise SettingsError(f"{dealing.place} was not begun: say that it happened, or retry the run.")
    decision = {"what": "did_not" if did_not else "happened", "value": text, "intent": dealing.intent}
    ends_as = _verdict(row, dealing) if compensate else None
    verb = Decide(row.id, dealing.place, json.dumps(decision), last, secrets.token_hex(8), ends_as)
    outcome = await house.writer.ask(verb)
    if isinstance(outcome, Refused):
        changed = outcome.why in (VERSION, STATUS)
        raise WrongStatus(
            f"run {row.id!r} has gone on meanwhile: look at it again."
            if changed
            else f"run {row.id!r} is gone."
        )


def undecided(dealings: Dealings) -> list[Dealing]:
    """What a person may decide, newest first: what is open, and compensations that failed."""
    stuck = [
        one
        for one in dealings.places.values()
        if one.place.startswith(UNDO) and one.intent and not one.happened and not one.open
    ]
    return dealings.opened + stuck


def choose(run: str, dealings: Dealings, effect: str) -> Dealing:
    """By its place, or by its name where just one is of that name. UnknownEffect otherwise, with those that there are."""
    there = undecided(dealings)
    named = [one for one in there if one.place == effect] or [one for one in there if one.effect == effect]
    if len(named) == 1:
        return named[0]
    undone = dealings.get(effect.removeprefix(UNDO)) if effect.startswith(UNDO) else None
    if undone is not None and undone.undoable and dealings.undoing is not None:  # not begun: undone by hand
        return Dealing(effect, "intent", 0, undone.compensation or undone.effect, undone.code)
    raise UnknownEffect(run, effect, [one.place for one in named or there])


def _check_seen(run: str, dealing: Dealing, intent: int | None) -> None:
    """Whoever decides must mean the last intent: what was seen of an earlier one says nothing of it."""
    if intent is None and dealing.tried_anew:
        raise SettingsError(
            f"{dealing.place} of run {run!r} was tried again since somebody last decided or had it tried again. Look at what came of the last one, then say that it is meant: "
            f"intent={dealing.intent} (--intent {dealing.intent})."
        )
    if intent not in (None, dealing.intent):
        raise WrongStatus(
            f"{dealing.place} of run {run!r} has no open intent {intent}: the last one is {dealing.intent}. Look at it again."
        )


def _check_result(dealing: Dealing, text: str) -> None:
    """Where this program has the effect's code, what is said must be a result of it."""
    effect = find(dealing.effect, dealing.code)
    if effect is not None and not dealing.place.startswith(UNDO):
        try:
            effect.signature.returns().decode(text)
        except Unrecordable as unfit:
            raise Unrecordable(f"{text[:80]} is no result of effect {dealing.effect}: {unfit}") from unfit


def _verdict(row: RunRow, dealing: Dealing) -> str:
    if row.undoing is not None:
        raise OutlastError(f"run {row.id!r} is being undone already: say whether {dealing.place} happened.")
    if dealing.compensation is None:
        raise OutlastError(
            f"effect {dealing.effect} has no compensation. Say whether it happened; to have the rest of the run undone, cancel it then."
        )
    return verdict("cancelled", reason=f"somebody decided to undo it, at {dealing.place}")
