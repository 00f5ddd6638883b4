"""Apply the commands of sessions on an open transaction."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.commands import FENCE, TOKENS_MAX, VERSION, Refused
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def update(transaction: Transaction, command: commands.UpdateSession) -> int | Refused:
    if command.record is None:
        return _change(transaction, command)
    said = _said(transaction, command.record)
    if said is None:
        outcome = _change(transaction, command)
        said = (
            {"conflict": int(outcome.detail)}
            if isinstance(outcome, Refused)
            else {"version": outcome}
        )
        _record(transaction, command.record, said)
    if isinstance(said, Refused):
        return said
    return said["version"] if "version" in said else Refused(VERSION, str(said["conflict"]))


def delete(transaction: Transaction, command: commands.DeleteSession) -> Refused | None:
    if command.record is not None:
        said = _said(transaction, command.record)
        if said is not None:
            return said if isinstance(said, Refused) else None
        _record(transaction, command.record, {})
    pk, _, tokens = _found(transaction, command)
    if command.token not in tokens:
        _make(transaction, command, pk, _with(tokens, command.token, 0), version=0, ttl=0.0)
    return None


def extend(transaction: Transaction, command: commands.ExtendSession) -> None:
    transaction.db.execute(
        sql.SESSION_TOUCH, {**command._asdict(), **_times(transaction, command.ttl)}
    )


def prune(transaction: Transaction, command: commands.Prune) -> int:
    # Sessions that have not expired yet stay.
    before = min(command.before, math.nextafter(transaction.now, math.inf))
    expired = transaction.db.execute(sql.SESSIONS_EXPIRED, (before, command.limit)).fetchall()
    _drop(transaction, expired)
    return len(expired)


def _said(transaction: Transaction, record: commands.Record) -> dict[str, int] | Refused | None:
    """Return the entry's value if this is a repeat, or a Refused if it may not be written.

    Return None if it may be written.
    """
    here = transaction.db.execute(sql.RECORDED, (record.run, record.seq, record.fence)).fetchone()
    if here is not None:
        said: dict[str, int] = json.loads(here[0])
        return said
    taken = transaction.db.execute(sql.SEQ_TAKEN, (record.run, record.seq)).fetchone()
    held = transaction.db.execute(sql.HAS_FENCE, (record.run, record.fence)).fetchone()
    return None if held and not taken else Refused(FENCE)


def _record(transaction: Transaction, record: commands.Record, said: dict[str, int]) -> None:
    entry = record._replace(value=json.dumps(said))
    transaction.db.execute(sql.RECORD, (*entry, entry.run, entry.fence))


def _change(transaction: Transaction, command: commands.UpdateSession) -> int | Refused:
    pk, version, tokens = _found(transaction, command)
    if command.token in tokens:
        return tokens[command.token]
    if command.version is not None and command.version != version:
        return Refused(VERSION, str(version))
    if not version and _only_deletes(command):
        _make(transaction, command, pk, _with(tokens, command.token, 0), version=0, ttl=0.0)
        return 0
    newest = _with(tokens, command.token, version + 1)
    if pk is None or not version:
        pk = _make(transaction, command, pk, newest, version=1, ttl=command.ttl)
    else:
        times = {"extends": command.extends, **_times(transaction, command.ttl)}
        values = {"pk": pk, "version": version + 1, "tokens": newest, **times}
        transaction.db.execute(sql.SESSION_CHANGE, values)
    for field, value in command.fields.items():
        _set(transaction, pk, field, value)
    for field, more in command.appends.items():
        _append(transaction, pk, field, more)
    return version + 1


def _found(
    transaction: Transaction, command: commands.UpdateSession | commands.DeleteSession
) -> tuple[int | None, int, dict[str, int]]:
    """Return a session's pk, version and tokens.

    The version is 0 if the session does not exist, has expired or was deleted.
    """
    where = {"space": command.space, "session": command.session, "now": transaction.now}
    pk, version, tokens = transaction.db.execute(sql.SESSION, where).fetchone() or (None, 0, "{}")
    return pk, version, json.loads(tokens)


def _with(tokens: dict[str, int], token: str, version: int) -> str:
    return json.dumps(dict(list({**tokens, token: version}.items())[-TOKENS_MAX:]))


def _make(
    transaction: Transaction,
    command: commands.UpdateSession | commands.DeleteSession,
    before: int | None,
    tokens: str,
    *,
    version: int,
    ttl: float | None,
) -> int:
    """Insert a session or a tombstone and return its pk.

    Of the previous row only the tokens stay.
    """
    if before is not None:
        _drop(transaction, [(before,)])
    where = {
        "space": command.space,
        "session": command.session,
        "version": version,
        "tokens": tokens,
    }
    pk: int = transaction.db.execute(sql.SESSION_NEW, where | _times(transaction, ttl)).fetchone()[
        0
    ]
    return pk


def _only_deletes(command: commands.UpdateSession) -> bool:
    return (
        bool(command.fields)
        and not command.appends
        and all(value is None for value in command.fields.values())
    )


def _set(transaction: Transaction, pk: int, field: str, value: str | None) -> None:
    values = {"pk": pk, "field": field, "value": value}
    transaction.db.execute(sql.SESSION_UNLIST, values)
    transaction.db.execute(sql.SESSION_UNSET if value is None else sql.SESSION_SET, values)


def _append(transaction: Transaction, pk: int, field: str, more: commands.Append) -> None:
    values = {"pk": pk, "field": field, "count": len(more.values)}
    first, last = transaction.db.execute(sql.SESSION_LENGTHEN, values).fetchone()
    start = last - len(more.values) + 1
    items = [(pk, field, number, value) for number, value in enumerate(more.values, start)]
    transaction.db.executemany(sql.SESSION_ADD, items)
    if more.keep is not None and last - first + 1 > more.keep:
        values["first"] = last - more.keep + 1
        transaction.db.execute(sql.SESSION_SHORTEN, values)
        transaction.db.execute(sql.SESSION_CUT, values)


def _drop(transaction: Transaction, pks: Sequence[tuple[int]]) -> None:
    for statement in sql.SESSION_FORGET:
        transaction.db.executemany(statement, pks)


def _times(transaction: Transaction, ttl: float | None) -> dict[str, float | None]:
    return {"now": transaction.now, "expires": None if ttl is None else transaction.now + ttl}
