"""Record a person's decision on an effect whose outcome is unknown, and list a run's effects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outlast.codec.codecs import encode_message
from outlast.codec.signature import NOT_GIVEN
from outlast.errors import OutlastError, SettingsError, UnknownEffect, Unrecordable, WrongStatus
from outlast.execution.effect_call import find
from outlast.execution.effects_from_journal import UNDO, EffectLog, EffectRecord
from outlast.settings.limits import check_size
from outlast.store.commands import STATUS, VERSION, Decide, Refused, verdict
from outlast.store.protocol import Store, whole_journal
from outlast.store.tolerant_rows import legible

if TYPE_CHECKING:
    from outlast.engine.store_client import StoreClient
    from outlast.settings import Settings
    from outlast.store.rows import RunRow


def effect_log_of(store: Store, row: RunRow) -> tuple[EffectLog, int]:
    """Return a run's effect log and the number of its last entry.

    Read the whole journal. Raise StoreBroken if it cannot be read.
    """
    from outlast.execution.journal import Journal

    with legible(f"the journal of run {row.id!r}"):
        journal = Journal(whole_journal(store, row.pk))
    return journal.effect_log, journal.last_seq


async def decide(
    client: StoreClient,
    settings: Settings,
    row: RunRow,
    effect: str,
    *,
    happened: Any,
    did_not: bool,
    compensate: bool,
    result: Any,
    intent: int | None,
    token: str,
    by: str | None = None,
) -> None:
    """Record a person's decision on an undecided effect of a parked run.

    Raise SettingsError unless exactly one of `happened`, `did_not` and `compensate` is given. Raise
    WrongStatus if the run is not parked or has changed meanwhile, and UnknownEffect if there is no
    such effect.
    """
    if (happened is not NOT_GIVEN) + bool(did_not) + bool(compensate) != 1:
        raise SettingsError(
            "pass one of: happened=RESULT, did_not=True, compensate=True, or limit= for a budget."
        )
    if effect.startswith("budget:"):
        raise SettingsError(
            f"{effect!r} is a budget, not an effect. Raise it with limit=, or with "
            "`--limit usd=10` on the command line."
        )
    if row.status != "parked":
        if await client.read(_was_decided, client.store, row, token):
            return
        raise WrongStatus(
            f"run {row.id!r} is {row.status}: an effect can be decided only while its run is "
            "parked."
        )
    effect_log, last = await client.read(effect_log_of, client.store, row)
    effect_record = choose(row.id, effect_log, effect)
    _check_seen(row.id, effect_record, intent)
    text = "null" if did_not else encode_message(result if compensate else happened)
    check_size(settings, text, f"the result of effect {effect}")
    # Without a result, the effect is compensated without one.
    if not did_not and not (compensate and result is None):
        _check_result(effect_record, text)
    if did_not and not effect_record.intent:
        raise SettingsError(
            f"{effect_record.place} has not begun. Decide that it happened, or retry the run."
        )
    decision = {
        "what": "did_not" if did_not else "happened",
        "value": text,
        "intent": effect_record.intent,
        **({} if by is None else {"by": by}),
    }
    ends_as = _verdict(row, effect_record) if compensate else None
    command = Decide(row.id, effect_record.place, json.dumps(decision), last, token, ends_as)
    outcome = await client.writer.execute(command)
    if isinstance(outcome, Refused):
        changed = outcome.why in (VERSION, STATUS)
        raise WrongStatus(
            f"run {row.id!r} has changed in the meantime. Look at it again before you decide."
            if changed
            else f"run {row.id!r} no longer exists."
        )


def check_only_limit(
    *,
    happened: Any = NOT_GIVEN,
    did_not: bool = False,
    compensate: bool = False,
    result: Any = None,
    intent: int | None = None,
) -> None:
    """Raise SettingsError if a decision on a budget says something about an effect."""
    if happened is not NOT_GIVEN or did_not or compensate or (result, intent) != (None, None):
        raise SettingsError("limit= is for a budget. Pass it alone.")


def _was_decided(store: Store, row: RunRow, token: str) -> bool:
    """Return whether the journal has a decision with this token, so that this is a repeat."""
    with legible(f"the journal of run {row.id!r}"):
        return any(
            entry.kind == "decision" and json.loads(entry.value or "{}").get("token") == token
            for entry in whole_journal(store, row.pk)
        )


def undecided(effect_log: EffectLog) -> list[EffectRecord]:
    """Return the effects that a person may decide on.

    These are the open ones, newest first, and then the compensations that failed.
    """
    stuck = [
        one
        for one in effect_log.records.values()
        if one.place.startswith(UNDO) and one.intent and not one.happened and not one.open
    ]
    return effect_log.opened + stuck


def choose(run: str, effect_log: EffectLog, effect: str) -> EffectRecord:
    """Return the effect at this call site, or the only one of this name.

    Raise UnknownEffect otherwise. It lists the candidates.
    """
    there = undecided(effect_log)
    named = [one for one in there if one.place == effect] or [
        one for one in there if one.effect == effect
    ]
    if len(named) == 1:
        return named[0]
    undone = effect_log.get(effect.removeprefix(UNDO)) if effect.startswith(UNDO) else None
    # The compensation has not started: a person has done it by hand.
    if undone is not None and undone.undoable and effect_log.undoing is not None:
        return EffectRecord(effect, "intent", 0, undone.compensation or undone.effect, undone.code)
    raise UnknownEffect(run, effect, [one.place for one in named or there])


def _check_seen(run: str, effect_record: EffectRecord, intent: int | None) -> None:
    """Check that the decision is about the last intent.

    What a person saw of an earlier intent says nothing about it. Raise SettingsError if the effect
    was tried again and no `intent` is given, and WrongStatus if `intent` is not the last one.
    """
    if intent is None and effect_record.tried_again:
        raise SettingsError(
            f"{effect_record.place} of run {run!r} was tried again since it was last decided. "
            "Check the outcome of the last attempt, then name it: "
            f"intent={effect_record.intent} (--intent {effect_record.intent})."
        )
    if intent not in (None, effect_record.intent):
        raise WrongStatus(
            f"{effect_record.place} of run {run!r} has no open intent {intent}: the last one is "
            f"{effect_record.intent}. Check its outcome before you decide."
        )


def _check_result(effect_record: EffectRecord, text: str) -> None:
    """Raise Unrecordable if the result does not fit the effect's annotation.

    The check needs the effect's code in this program.
    """
    effect = find(effect_record.effect, effect_record.code)
    if effect is not None and not effect_record.place.startswith(UNDO):
        try:
            effect.signature.returns().decode(text)
        except Unrecordable as unfit:
            raise Unrecordable(
                f"{text[:80]} is not a result of effect {effect_record.effect}: {unfit}"
            ) from unfit


def _verdict(row: RunRow, effect_record: EffectRecord) -> str:
    """Return the verdict of a run that a person decided to compensate.

    Raise OutlastError if the run is being compensated already or the effect has no compensation.
    """
    if row.undoing is not None:
        raise OutlastError(
            f"run {row.id!r} is already being compensated. Decide whether {effect_record.place} "
            "happened."
        )
    if effect_record.compensation is None:
        raise OutlastError(
            f"effect {effect_record.effect} has no compensation. Decide whether it happened. Then "
            "cancel the run to compensate the rest."
        )
    return verdict(
        "cancelled", reason=f"a person decided to compensate it, at {effect_record.place}"
    )
