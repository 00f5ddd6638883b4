"""Undoing: what a run that failed, was cancelled or abandoned executes instead of its workflow, and what a unit does that an exception
leaves. Newest first, one at a time; what is open is resolved, what happened is compensated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.errors import Unrecordable
from outlast.replay import children, effects, leaving
from outlast.replay.dealings import UNDO, Dealing
from outlast.replay.errand import Errand, check_known, find
from outlast.replay.unit import join, units_around
from outlast.values.sentences import stopped

if TYPE_CHECKING:
    from outlast.define.effect import EffectBase
    from outlast.replay.life import Life
    from outlast.replay.place import Place

CHILDREN = f"{UNDO}(children)"
UNKNOWN_SECONDS = 600.0
"""How long a run in undoing waits for a worker that has the code for it, before a person is asked."""
BACK_SECONDS = 5.0
"""How long a run is left to other workers whose effects this one's code does not have."""


def register(life: Life, errand: Errand) -> Coroutine[Any, Any, None]:
    """Have it recorded that this is to be done if the run is undone. Its place is taken now."""
    effect = errand.effect
    check_known(effect)
    said: dict[str, Any] = {"effect": effect.name, "code": effect.code, "arguments": errand.arguments}
    life.house.check_size(json.dumps(said), f"the arguments of {effect.name}")
    units = units_around(effect, needs_compensation=False)
    place = life.take("compensation", f"compensate:{effect.name}", errand.fingerprint, while_cancelling=True)
    place.errand = errand
    join(units, place)
    if place.units:
        said["units"] = place.units
    return life.calling(place, partial(_record, value=json.dumps(said)))


def _record(life: Life, place: Place, value: str) -> None:
    if life.record("compensation", place.key, args=place.args, value=value):
        life.house.meters.compensation("registered")


async def undo(life: Life) -> None:
    """The main task of a run in undoing. What the journal had when that began is given, what came since is replayed."""
    assert life.row.undoing is not None
    compensating = json.loads(life.row.undoing)["status"] != "done"
    dealings = life.journal.dealings
    undoing = dealings.undoing
    assert undoing is not None
    if compensating:
        await _end_children(life)
    for dealing in list(dealings):
        if dealing.kind == "intent" and _was_open(dealing, undoing):
            await _resolve(life, dealing)
        begun = dealings.get(UNDO + dealing.place)
        begun_before = begun is not None and begun.intent > 0 and begun.first < undoing  # by a unit
        done_before = dealing.undone is not None and dealing.undone < undoing
        to_undo = dealing.happened and not done_before and not dealing.by_hand
        if to_undo and (compensating or begun_before):
            await _compensate(life, dealing)


async def _end_children(life: Life) -> None:
    """Children that have not ended must act no more, and those whose end is not in the journal are undone first: they are the newest."""
    place = life.take_at("child", CHILDREN, None)
    await _outcome(life, life.outcome(place, children.launch_end_all))


def _was_open(dealing: Dealing, undoing: int) -> bool:
    """When the run began to be undone; it may have been resolved since."""
    closed_since = dealing.closed is not None and dealing.closed.seq > undoing
    return dealing.open or closed_since or dealing.intent > undoing


async def _is_on_record(life: Life, dealing: Dealing | None) -> bool:
    """What has been done since is only replayed: whoever goes on with the rest need not have the code for it."""
    if dealing is None or dealing.closed is None or dealing.place not in life.journal.placed:
        return False
    place = life.take_at("step", dealing.place, dealing.closed.args)
    place.errand = Errand.answered(dealing)
    await _outcome(life, life.outcome(place, effects.launch))
    return True


async def _resolve(life: Life, dealing: Dealing) -> None:
    if await _is_on_record(life, dealing):
        return
    effect = await _known(life, dealing.effect, dealing.code)
    place = life.take_at("step", dealing.place, dealing.args)
    place.units = dealing.units
    await _outcome(life, effects.attend(life, place, Errand.recorded(effect, dealing, resolve_only=True)))


async def _compensate(life: Life, dealing: Dealing) -> None:
    if dealing.kind == "child":
        place = life.take_at("child", UNDO + dealing.place, None)
        await _outcome(life, life.outcome(place, partial(children.launch_undo, of=dealing.place)))
        return
    begun = life.journal.dealings.get(UNDO + dealing.place)
    needless = dealing.kind == "intent" and dealing.compensation is None
    if needless or await _is_on_record(life, begun):
        return
    effect = await _known(life, dealing.effect, dealing.code)
    errand = Errand.recorded(effect, dealing, resolve_only=False)
    if dealing.kind == "intent":
        compensation = effect.compensation
        if compensation is None or compensation.name != dealing.compensation:
            compensation = await _known(life, dealing.compensation or "", dealing.code)
        if begun is not None and begun.intent:
            # What is on record counts, also if the code takes other arguments by now.
            errand = Errand.recorded(compensation, begun, resolve_only=False)
        else:
            assert dealing.closed is not None
            result = dealing.value if dealing.closed.error is None else None
            errand = await _undoing(life, dealing, errand, compensation, result)
    place = life.take_at("step", UNDO + dealing.place, errand.fingerprint)
    await _outcome(life, effects.attend(life, place, errand))


async def _undoing(
    life: Life, dealing: Dealing, errand: Errand, compensation: EffectBase[..., Any], result: str | None
) -> Errand:
    """The call of a compensation. One that cannot be made is a person's business: nothing is known that could be given to it."""
    try:
        return errand.undo(compensation, dealing.key, result)
    except Unrecordable as unfit:
        why = f"its compensation {compensation.name} cannot be called: {stopped(str(unfit))} Undo it by hand, then decide that it happened."
        leaving.cannot_tell(life, UNDO + dealing.place, why)
        await asyncio.Future(loop=life.loop)
        raise


async def _outcome(life: Life, coro: Coroutine[Any, Any, Any]) -> None:
    """That it did not happen is an exception, and no concern of ours; what cannot be undone never gets here."""
    try:
        await coro
    except asyncio.CancelledError:
        if life.over is not None:
            raise
    except Exception:
        if life.over is not None:
            raise


async def _known(life: Life, name: str, module: str) -> EffectBase[..., Any]:
    effect = find(name, module)
    if effect is None and life.now() - life.journal.dealings.at > UNKNOWN_SECONDS:
        raise LookupError(f"no worker's code has had effect {name} for {UNKNOWN_SECONDS:.0f} s")
    if effect is None:
        leaving.give_back(life, f"effect {name} is not known to this worker's code", BACK_SECONDS)
        await asyncio.Future(loop=life.loop)
    assert effect is not None
    return effect


async def undo_members(life: Life, members: Sequence[Place]) -> None:
    """Undo what a unit has done, newest first, once all of it is known."""
    for place in members:
        if place.errand is not None and place.kind == "step":
            place.errand.resolve_only = True  # what has not acted yet does not
            if place.stop is not None:
                place.stop()  # nor is its next attempt waited for
    for place in members:
        if place.coro is None:  # somebody has awaited it
            await life.until_delivered(place)
    for place in reversed(members):
        errand, dealing = place.errand, life.journal.dealings.get(place.key)
        happened = place.text is not None and not place.undone
        if errand is None or dealing is None or not happened:
            continue
        if place.kind == "compensation":
            undoing = errand
        elif errand.effect.compensation is not None:
            result = None if place.error is not None else place.text
            undoing = await _undoing(life, dealing, errand, errand.effect.compensation, result)
        else:
            continue
        where = life.take_at("step", UNDO + place.key, undoing.fingerprint)
        await _outcome(life, effects.attend(life, where, undoing))
        place.undone = True
