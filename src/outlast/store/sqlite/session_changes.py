"""Change one session: check every condition first, then write.

So several changes can be checked before the first of them is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from outlast.store import commands
from outlast.store.commands import INDEX, LIMIT, OWNER, PRESENT, TOKENS_MAX, VERSION, Refused
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction

Answer: TypeAlias = dict[str, Any]
"""What a change returned: see `outlast.store.session_answers`."""
Span: TypeAlias = tuple[int, int]
"""The numbers of a list's first and last item."""


class Found(NamedTuple):
    """A session as a change finds it."""

    pk: int | None
    """None if there is no row, not even of an expired or deleted session."""
    version: int
    """0 if the session does not exist, has expired or was deleted."""
    tokens: dict[str, int | Answer]
    """What each of the last changes returned."""
    owner: int | None
    size: int


def find(
    transaction: Transaction, command: commands.UpdateSession | commands.DeleteSession
) -> Found:
    where = {"space": command.space, "session": command.session, "now": transaction.now}
    row = transaction.db.execute(sql.SESSION_FOUND, where).fetchone()
    if row is None:
        return Found(None, 0, {}, None, 0)
    pk, version, tokens, owner, size = row
    known = json.loads(tokens)
    return Found(pk, version, known, owner, size) if version else Found(pk, 0, known, None, 0)


class Plan:
    """One change: what it finds, whether it may happen, and what it writes."""

    def __init__(
        self, transaction: Transaction, command: commands.UpdateSession, found: Found
    ) -> None:
        self._transaction, self._command, self._found = transaction, command, found
        self._before: dict[str, Span | None] = self._touched()
        """The fields that the change is about, as far as they exist. None: it has a value."""
        self._after = dict(self._before)
        self._sets = {
            field: value
            for field, value in command.fields.items()
            if field not in self._before or field not in command.absent
        }
        self._popped: dict[str, list[str]] = {}
        self._replaced: dict[str, int] = {}
        """The numbers of the items that are replaced."""
        self._no_item: dict[str, int] = {}
        """The lists that have no item to replace, and their lengths."""

    def _touched(self) -> dict[str, Span | None]:
        command, pk = self._command, self._found.pk
        names = [*command.fields, *command.appends, *command.pops, *command.replaces]
        if not names or not self._found.version or command.clear:
            return {}
        values = {"pk": pk, "names": json.dumps(names, ensure_ascii=False)}
        return {
            field: None if first is None else (first, last)
            for field, first, last in self._transaction.db.execute(sql.SESSION_TOUCHED, values)
        }

    # -- conditions

    def refusal(self, *, alone: bool = True) -> Refused | None:
        """Return why the change may not happen. None if it may.

        One that has nothing to set is refused only if it is made alone.
        """
        command, found = self._command, self._found
        if command.owner is not None and command.owner != found.owner:
            return Refused(OWNER, "" if found.owner is None else str(found.owner))
        if command.version is not None and command.version != found.version:
            return Refused(VERSION, str(found.version))
        if alone and command.fields and not self._sets and not self._does_more():
            return Refused(PRESENT, str(found.version))
        self._foresee()
        if self._no_item:
            field = min(self._no_item)
            return Refused(INDEX, f"{self._no_item[field]}/{field}")
        return self._over_limit()

    def _does_more(self) -> bool:
        command = self._command
        return bool(
            command.appends or command.pops or command.replaces or command.clear or command.take
        )

    def _foresee(self) -> None:
        """Work out what the fields and lists will be."""
        command, after = self._command, self._after
        for field, value in self._sets.items():
            after.pop(field, None)
            if value is not None:
                after[field] = None
        for field, count in command.pops.items():
            span = after.get(field)
            if span is not None:
                self._pop(field, span, count)
        for field, (index, _) in command.replaces.items():
            span = after.get(field)
            count = 0 if span is None else _count(span)
            if span is None or not -count <= index < count:
                self._no_item[field] = count
            else:
                self._replaced[field] = span[0] + index if index >= 0 else span[1] + 1 + index
        for field, (values, keep) in command.appends.items():
            first, last = after.get(field) or (1, 0)
            last += len(values)
            after[field] = (first if keep is None else max(first, last - keep + 1), last)

    def _pop(self, field: str, span: Span, count: int) -> None:
        first, last = span
        cut = max(first, last - max(count, 0) + 1)
        if cut <= last:
            values = {"pk": self._found.pk, "field": field, "first": cut}
            rows = self._transaction.db.execute(sql.SESSION_NEWEST, values)
            self._popped[field] = [value for (value,) in rows]
        if cut > first:
            self._after[field] = (first, cut - 1)
        else:
            del self._after[field]

    @property
    def _size(self) -> int:
        """Return the number of fields and lists afterwards."""
        before = 0 if self._command.clear else self._found.size
        return before + len(self._after) - len(self._before)

    def _over_limit(self) -> Refused | None:
        limits = self._command.limits
        if limits is None:
            return None
        if self._size > max(limits.fields, self._found.size):
            return Refused(LIMIT, f"fields/{limits.fields}/{self._size}/")
        for field in sorted(self._command.appends):
            before, after = self._before.get(field), self._after[field]
            assert after is not None
            count = _count(after)
            if count > max(limits.items, 0 if before is None else _count(before)):
                return Refused(LIMIT, f"items/{limits.items}/{count}/{field}")
        popped = sum(len(value) for values in self._popped.values() for value in values)
        if popped > limits.popped:
            return Refused(LIMIT, f"popped/{limits.popped}/{popped}/")
        return None

    # -- writing

    def write(self) -> Answer:
        """Write the change and return its answer. Only after `refusal` has returned None."""
        transaction, command, found = self._transaction, self._command, self._found
        if not found.version and not command.may_create:
            answer: Answer = {"version": 0}
            bury(transaction, command, found, answer)
            return answer
        answer = {"version": found.version + 1}
        owner = found.owner
        if command.take:
            answer["owner"] = owner = transaction.next_fences(1)
        if self._popped:
            answer["popped"] = self._popped
        pk = self._write_row(answer, owner)
        if command.clear and found.version:
            for statement in sql.SESSION_EMPTY:
                transaction.db.execute(statement, (pk,))
        self._write_fields(pk)
        return answer

    def _write_row(self, answer: Answer, owner: int | None) -> int:
        transaction, command, found = self._transaction, self._command, self._found
        values: dict[str, Any] = {"owner": owner, "size": self._size}
        values["version"] = found.version + 1
        values["tokens"] = _with(found.tokens, command.token, answer)
        if found.pk is None or not found.version:
            return _insert(transaction, command, found, values, command.ttl)
        values |= {"pk": found.pk, "extends": command.extends, **times(transaction, command.ttl)}
        transaction.db.execute(sql.SESSION_CHANGE, values)
        return found.pk

    def _write_fields(self, pk: int) -> None:
        db, command = self._transaction.db, self._command
        for field, value in self._sets.items():
            values = {"pk": pk, "field": field, "value": value}
            if self._before.get(field) is not None:
                db.execute(sql.SESSION_UNLIST, values)
            if value is not None:
                db.execute(sql.SESSION_SET, values)
            elif field in self._before:
                db.execute(sql.SESSION_UNSET, values)
        for field, number in self._replaced.items():
            value = command.replaces[field].value
            db.execute(
                sql.SESSION_REPLACE, {"pk": pk, "field": field, "number": number, "value": value}
            )
        for field in {*self._popped, *command.appends}:
            self._write_list(pk, field)

    def _write_list(self, pk: int, field: str) -> None:
        db, added = self._transaction.db, self._command.appends.get(field)
        values: dict[str, Any] = {"pk": pk, "field": field}
        span = self._after.get(field)
        if span is None:
            db.execute(sql.SESSION_UNLIST, values)
            db.execute(sql.SESSION_UNSET, values)
            return
        values["first"], values["last"] = span
        start = span[1] + 1 - (0 if added is None else len(added.values))
        if field in self._popped:
            db.execute(sql.SESSION_CUT_NEWEST, values | {"last": start - 1})
        if added is not None:
            items = [(pk, field, number, text) for number, text in enumerate(added.values, start)]
            db.executemany(sql.SESSION_ADD, items)
            if added.keep is not None:
                db.execute(sql.SESSION_CUT_OLDEST, values)
        db.execute(sql.SESSION_SET_LIST, values)


def bury(
    transaction: Transaction,
    command: commands.UpdateSession | commands.DeleteSession,
    found: Found,
    answer: Answer,
) -> None:
    """Delete a session. A tombstone stays, with the tokens."""
    tokens = _with(found.tokens, command.token, answer)
    values = {"owner": None, "size": 0, "version": 0, "tokens": tokens}
    _insert(transaction, command, found, values, 0.0)


def _insert(
    transaction: Transaction,
    command: commands.UpdateSession | commands.DeleteSession,
    found: Found,
    values: dict[str, Any],
    ttl: float | None,
) -> int:
    """Insert a session or a tombstone in place of what was found, and return its pk."""
    if found.pk is not None:
        drop(transaction, [(found.pk,)])
    values |= {"space": command.space, "session": command.session, **times(transaction, ttl)}
    pk: int = transaction.db.execute(sql.SESSION_NEW, values).fetchone()[0]
    return pk


def drop(transaction: Transaction, pks: Sequence[tuple[int]]) -> None:
    """Delete sessions and all that belongs to them."""
    for statement in sql.SESSION_FORGET:
        transaction.db.executemany(statement, pks)


def times(transaction: Transaction, ttl: float | None) -> dict[str, float | None]:
    """Return when a change happens and when its session expires."""
    return {"now": transaction.now, "expires": None if ttl is None else transaction.now + ttl}


def _with(tokens: dict[str, int | Answer], token: str, answer: Answer) -> str:
    remembered = answer["version"] if len(answer) == 1 else answer
    return json.dumps(dict(list({**tokens, token: remembered}.items())[-TOKENS_MAX:]))


def _count(span: Span) -> int:
    return span[1] - span[0] + 1
