"""Check that a session always equals a plain dictionary, whatever commands are applied."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    INDEX,
    LIMIT,
    OWNER,
    PRESENT,
    SESSION,
    TOKENS_MAX,
    VERSION,
    Append,
    Changed,
    DeleteSession,
    ExtendSession,
    Prune,
    Refused,
    Replace,
    SessionLimits,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.session_rows import FieldQuery, SessionQuery, SessionRow
from outlast.testing.conformance.harness import Contract, StoreDriver

KEYS = (("s", SESSION), ("s", CHECKPOINT), ("t", SESSION))
SLICES = ((0, None), (-2, None), (1, 3), (0, -1), (-9, 2), (5, 4))


class SessionModelContract(Contract):
    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_is_done_a_session_is_what_a_plain_dictionary_would_be(
        self, driver: StoreDriver, seed: int
    ) -> None:
        story = Story(driver, seed)
        for turn in range(120):
            driver.clock.forward(story.chance.choice((0, 0, 1, 3)))
            command = story.chosen(turn)
            outcome = driver.one(command)
            assert outcome == story.model.apply(command, driver.clock.now, outcome), (turn, command)
            # Keys that the turn's command did not touch are compared only now and then, because the
            # reads dominate the test.
            whole = turn % 10 == 9 or isinstance(command, Prune)
            story.compare(KEYS if whole else touched(command), (turn, command))
            if whole:
                story.compare_lists()


def touched(command: Any) -> tuple[tuple[str, str], ...]:
    changes = command.changes if isinstance(command, UpdateSessions) else (command,)
    return tuple((change.session, change.space) for change in changes)


class Story:
    """A random sequence of commands, applied to a store and to a model."""

    def __init__(self, driver: StoreDriver, seed: int) -> None:
        self.driver = driver
        self.chance, self.model = random.Random(seed), Model()  # noqa: S311 - a story, no secret
        self._slices = itertools.cycle(SLICES[1:])
        """Each list is compared as a whole and in one slice: the reads dominate the test."""

    def chosen(
        self, turn: int
    ) -> UpdateSession | UpdateSessions | ExtendSession | DeleteSession | Prune:
        chance = self.chance
        key = chance.choice(KEYS)
        what, ttl = chance.random(), chance.choice((None, 4.0, 8.0))
        token = f"t{turn - chance.choice((0, 0, 0, 1, 5))}"
        if what < 0.1:
            return DeleteSession(key[0], token, key[1])
        if what < 0.17:
            return ExtendSession(key[0], ttl, key[1])
        if what < 0.22:
            return Prune(1e12, limit=chance.choice((1, 9)), sessions=True)
        if what < 0.35:
            keys = chance.sample(KEYS, 2)
            return UpdateSessions(tuple(self._change(key, token, turn) for key in keys))
        return self._change(key, token, turn)

    def _change(self, key: tuple[str, str], token: str, turn: int) -> UpdateSession:
        chance = self.chance

        def some() -> list[str]:
            return chance.sample("abc", chance.choice((0, 0, 1, 2)))

        fields = {field: chance.choice((None, f"{turn}{field}", f"{turn}")) for field in some()}
        appends = {
            field: Append(
                tuple(f"{turn}.{n}" for n in range(chance.randrange(1, 4))),
                chance.choice((None, None, 1, 2, 5)),
            )
            for field in some()
        }
        owners = (None, None, None, self.model.owner(key), 1)
        return UpdateSession(
            key[0],
            token,
            fields,
            chance.choice((None, 4.0, 8.0)),
            chance.choice((None, None, None, None, 0, 1, 2, 3)),
            appends,
            key[1],
            extends=chance.random() < 0.5,
            absent=tuple(some()),
            pops={field: chance.randrange(1, 4) for field in some()},
            replaces={
                field: Replace(chance.randrange(-2, 2), f"{turn}r")
                for field in (some() if chance.random() < 0.4 else ())
            },
            clear=chance.random() < 0.05,
            take=chance.random() < 0.1,
            owner=chance.choice(owners),
            limits=chance.choice((None, SessionLimits(2, 4, 12), SessionLimits(9, 99, 999))),
        )

    def compare(self, keys: Any, where: Any) -> None:
        store, model, now = self.driver.store, self.model, self.driver.clock.now
        for key in keys:
            row = model.session(key, now)
            assert store.session(*key) == row, where
            names = ("a", "c", "absent")
            assert store.session(*key, names=names, values=False) == (
                None if row is None else narrowed(row, names)
            ), where
            for query in (
                FieldQuery(key[0], limit=2, space=key[1]),
                FieldQuery(key[0], after="b", reverse=True, space=key[1]),
            ):
                assert store.fields(query) == (None if row is None else matching(row, query)), where
            for field in "abc":
                items = model.items(key, field, now)
                for start, stop in (SLICES[0], next(self._slices)):
                    found = store.items(key[0], field, start, stop, key[1])
                    assert found == items[start:stop], (where, field, start, stop)

    def compare_lists(self) -> None:
        store = self.driver.store
        for space in (SESSION, CHECKPOINT):
            listed = [
                session for key in KEYS if key[1] == space and (session := store.session(*key))
            ]
            listed.sort(key=lambda row: (row.updated, row.id), reverse=True)
            assert store.sessions(SessionQuery(space, values=True)) == listed
            listed.sort(key=lambda row: row.id)
            assert store.sessions(SessionQuery(space, by_id=True, values=True)) == listed


def replaced(items: list[str], at: int, value: str) -> list[str]:
    after = [*items]
    after[at] = value
    return after


def narrowed(row: SessionRow, names: tuple[str, ...]) -> SessionRow:
    return row._replace(
        fields={name: "" for name in row.fields if name in names},
        lists={name: count for name, count in row.lists.items() if name in names},
    )


def matching(row: SessionRow, query: FieldQuery) -> SessionRow:
    names = sorted(row.fields, reverse=query.reverse)
    after = query.after
    if after is not None:
        names = [name for name in names if (name < after if query.reverse else name > after)]
    return row._replace(fields={name: row.fields[name] for name in names[: query.limit]}, lists={})


class Model:
    """Model sessions as plain dictionaries from a field to a value or a list.

    A deleted session has version 0.
    """

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {}
        self._taken = 0

    def owner(self, key: tuple[str, str]) -> int | None:
        return self.there[key]["owner"] if key in self.there else None

    def _alive(self, key: tuple[str, str], now: float) -> dict[str, Any] | None:
        found = self.there.get(key)
        over = found is None or (found["expires"] is not None and found["expires"] <= now)
        return None if over or found is None or not found["version"] else found

    def _version(self, key: tuple[str, str], now: float) -> int:
        session = self._alive(key, now)
        return session["version"] if session else 0

    def apply(self, command: Any, now: float, outcome: Any) -> Any:
        """Apply a command. `outcome` is the store's, which alone knows the number of an owner."""
        if isinstance(command, Prune):
            return self._prune(command, now)
        if isinstance(command, UpdateSessions):
            return self._update_all(command, now, outcome)
        key = (command.session, command.space)
        session = self._alive(key, now)
        if isinstance(command, ExtendSession):
            if session is not None and session["expires"] is not None:
                session["expires"] = (
                    None if command.ttl is None else max(session["expires"], now + command.ttl)
                )
            return None
        tokens = self._tokens(key)
        if command.token in tokens:
            return None if isinstance(command, DeleteSession) else tokens[command.token]
        if isinstance(command, DeleteSession):
            self._put(key, 0, now, now, {}, None, command.token, 0)
            return None
        after = self._changed(command, session, alone=True)
        return after if isinstance(after, Refused) else self._write(command, now, after, outcome)

    def _prune(self, command: Prune, now: float) -> int:
        expired = sorted(
            (session["expires"], key)
            for key, session in self.there.items()
            if session["expires"] is not None and session["expires"] <= now
        )
        for _, key in expired[: command.limit]:
            del self.there[key]
        return len(expired[: command.limit])

    def _update_all(self, command: UpdateSessions, now: float, outcomes: Any) -> Any:
        keys = touched(command)
        both = list(zip(keys, command.changes, strict=True))
        if any(change.token in self._tokens(key) for key, change in both):
            return [
                self._tokens(key).get(
                    change.token, (self._alive(key, now) or {"version": 0})["version"]
                )
                for key, change in both
            ]
        results = [
            self._changed(change, self._alive(key, now), alone=False) for key, change in both
        ]
        for position, result in enumerate(results):
            if isinstance(result, Refused):
                return Refused(result.why, f"{position}/{result.detail}")
        assert isinstance(outcomes, list), outcomes
        parts = zip(command.changes, results, outcomes, strict=True)
        return [self._write(change, now, after, outcome) for change, after, outcome in parts]

    def _changed(
        self, command: UpdateSession, session: dict[str, Any] | None, *, alone: bool
    ) -> Refused | tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
        """Return the fields afterwards and what was popped, or why the change is refused."""
        version = session["version"] if session else 0
        had = session["fields"] if session else {}
        owner = session["owner"] if session else None
        if command.owner is not None and command.owner != owner:
            return Refused(OWNER, "" if owner is None else str(owner))
        if command.version not in (None, version):
            return Refused(VERSION, str(version))
        fields = {} if command.clear else dict(had)
        kept = [name for name in command.absent if name in fields and name in command.fields]
        more = command.appends or command.pops or command.replaces or command.clear or command.take
        if alone and kept and set(kept) == set(command.fields) and not more:
            return Refused(PRESENT, str(version))
        for field, value in command.fields.items():
            if field not in kept:
                fields.pop(field, None)
                if value is not None:
                    fields[field] = value
        popped = self._pop(command, fields)
        gone = {}
        for field, (at, value) in command.replaces.items():
            items = fields.get(field)
            count = len(items) if isinstance(items, list) else 0
            if -count <= at < count:
                fields[field] = replaced(fields[field], at, value)
            else:
                gone[field] = count
        if gone:
            return Refused(INDEX, f"{gone[min(gone)]}/{min(gone)}")
        for field, more_items in command.appends.items():
            before = fields.get(field)
            items = [*(before if isinstance(before, list) else []), *more_items.values]
            fields[field] = items if more_items.keep is None else items[-more_items.keep :]
        return self._beyond(command, {} if command.clear else had, len(had), fields, popped) or (
            fields,
            popped,
        )

    def _pop(self, command: UpdateSession, fields: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        popped = {}
        for field, count in command.pops.items():
            items = fields.get(field)
            if isinstance(items, list):
                popped[field] = tuple(items[-count:])
                fields[field] = items[:-count]
                if not fields[field]:
                    del fields[field]
        return popped

    def _beyond(
        self,
        command: UpdateSession,
        had: dict[str, Any],
        size: int,
        fields: dict[str, Any],
        popped: dict[str, tuple[str, ...]],
    ) -> Refused | None:
        limits = command.limits
        if limits is None:
            return None
        if len(fields) > max(limits.fields, size):
            return Refused(LIMIT, f"fields/{limits.fields}/{len(fields)}/")
        for field in sorted(command.appends):
            before, count = had.get(field), len(fields[field])
            if count > max(limits.items, len(before) if isinstance(before, list) else 0):
                return Refused(LIMIT, f"items/{limits.items}/{count}/{field}")
        characters = sum(len(value) for values in popped.values() for value in values)
        if characters > limits.popped:
            return Refused(LIMIT, f"popped/{limits.popped}/{characters}/")
        return None

    def _write(self, command: UpdateSession, now: float, after: Any, outcome: Any) -> Any:
        key, (fields, popped) = (command.session, command.space), after
        session = self._alive(key, now)
        version = (session["version"] if session else 0) + 1
        deletes = command.fields or command.pops or command.clear
        sets = any(value is not None for value in command.fields.values())
        if session is None and deletes and not (sets or command.appends or command.take):
            self._put(key, 0, now, now, {}, None, command.token, 0)
            return 0
        owner = session["owner"] if session else None
        answer: Any = version
        if command.take:
            assert isinstance(outcome, Changed), outcome
            assert outcome.owner is not None
            assert outcome.owner > self._taken
            owner = self._taken = outcome.owner
        if command.take or popped:
            answer = Changed(version, popped, owner if command.take else None)
        expires = None if command.ttl is None else now + command.ttl
        if command.extends and session is not None:
            was = session["expires"]
            expires = None if was is None or expires is None else max(was, expires)
        self._put(key, version, now, expires, fields, owner, command.token, answer)
        return answer

    def _tokens(self, key: tuple[str, str]) -> dict[str, Any]:
        tokens: dict[str, Any] = self.there.get(key, {"tokens": {}})["tokens"]
        return tokens

    def _put(
        self,
        key: tuple[str, str],
        version: int,
        now: float,
        expires: float | None,
        fields: dict[str, Any],
        owner: int | None,
        token: str,
        answer: Any,
    ) -> None:
        newest = dict(list({**self._tokens(key), token: answer}.items())[-TOKENS_MAX:])
        self.there[key] = {
            "version": version,
            "updated": now,
            "expires": expires,
            "fields": fields,
            "owner": owner,
            "tokens": newest,
        }

    def session(self, key: tuple[str, str], now: float) -> SessionRow | None:
        session = self._alive(key, now)
        if session is None:
            return None
        fields = sorted(session["fields"].items())
        return SessionRow(
            key[0],
            session["version"],
            session["updated"],
            session["expires"],
            {field: value for field, value in fields if isinstance(value, str)},
            {field: len(value) for field, value in fields if isinstance(value, list)},
            session["owner"],
        )

    def items(self, key: tuple[str, str], field: str, now: float) -> list[str]:
        session = self._alive(key, now)
        value = session["fields"].get(field) if session else None
        return value if isinstance(value, list) else []
