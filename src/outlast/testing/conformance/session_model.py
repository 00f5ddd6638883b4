"""Check that a session always equals a plain dictionary, whatever commands are applied."""

from __future__ import annotations

import random
from typing import Any

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    SESSION,
    TOKENS_MAX,
    VERSION,
    Append,
    DeleteSession,
    ExtendSession,
    Prune,
    Refused,
    UpdateSession,
)
from outlast.store.rows import SessionQuery, SessionRow
from outlast.testing.conformance.harness import Contract, StoreDriver


class SessionModelContract(Contract):
    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_is_done_a_session_is_what_a_plain_dictionary_would_be(
        self, driver: StoreDriver, seed: int
    ) -> None:
        chance, model = random.Random(seed), Model()  # noqa: S311 - a story, no secret
        for turn in range(120):
            driver.clock.forward(chance.choice((0, 0, 1, 3)))
            command = chosen(chance, turn)
            assert driver.one(command) == model.apply(command, driver.clock.now), (turn, command)
            # Keys that the turn's command did not touch are compared only now and then, because the
            # reads dominate the test.
            whole = turn % 10 == 9 or isinstance(command, Prune)
            touched = () if isinstance(command, Prune) else ((command.session, command.space),)
            for key in KEYS if whole else touched:
                assert driver.store.session(*key) == model.session(key, driver.clock.now), (
                    turn,
                    command,
                )
                for field in "abc":
                    for last in (None, 2):
                        found = driver.store.items(key[0], field, last, key[1])
                        assert found == model.items(key, field, last, driver.clock.now), (
                            turn,
                            command,
                        )
            for space in (SESSION, CHECKPOINT) if whole else ():
                listed = [
                    session
                    for key in KEYS
                    if key[1] == space and (session := driver.store.session(*key))
                ]
                listed.sort(key=lambda row: (row.updated, row.id), reverse=True)
                assert driver.store.sessions(SessionQuery(space)) == listed


KEYS = (("s", SESSION), ("s", CHECKPOINT), ("t", SESSION))


def chosen(
    chance: random.Random, turn: int
) -> UpdateSession | ExtendSession | DeleteSession | Prune:
    id, space = chance.choice(KEYS)
    what, ttl = chance.random(), chance.choice((None, 4.0, 8.0))
    token = f"t{turn - chance.choice((0, 0, 0, 1, 5))}"
    if what < 0.12:
        return DeleteSession(id, token, space)
    if what < 0.2:
        return ExtendSession(id, ttl, space)
    if what < 0.25:
        return Prune(1e12, limit=chance.choice((1, 9)), sessions=True)
    fields = {
        field: chance.choice((None, f"{turn}{field}"))
        for field in chance.sample("abc", chance.randrange(3))
    }
    appends = {
        field: Append(
            tuple(f"{turn}.{n}" for n in range(chance.randrange(1, 4))),
            chance.choice((None, 1, 2, 5)),
        )
        for field in chance.sample("abc", chance.randrange(3))
    }
    version = chance.choice((None, None, 0, 1, 2, 3))
    return UpdateSession(
        id, token, fields, ttl, version, appends, space, extends=chance.random() < 0.5
    )


class Model:
    """Model sessions as plain dictionaries from a field to a value or a list.

    A deleted session has version 0.
    """

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {}

    def _alive(self, key: tuple[str, str], now: float) -> dict[str, Any] | None:
        found = self.there.get(key)
        over = found is None or (found["expires"] is not None and found["expires"] <= now)
        return None if over or found is None or not found["version"] else found

    def apply(
        self, command: UpdateSession | ExtendSession | DeleteSession | Prune, now: float
    ) -> int | Refused | None:
        if isinstance(command, Prune):
            expired = sorted(
                (session["expires"], key)
                for key, session in self.there.items()
                if session["expires"] is not None and session["expires"] <= now
            )
            for _, key in expired[: command.limit]:
                del self.there[key]
            return len(expired[: command.limit])
        key = (command.session, command.space)
        session = self._alive(key, now)
        if isinstance(command, ExtendSession):
            if session is not None and session["expires"] is not None:
                session["expires"] = (
                    None if command.ttl is None else max(session["expires"], now + command.ttl)
                )
            return None
        tokens = self.there.get(key, {"tokens": {}})["tokens"]
        if command.token in tokens:
            return None if isinstance(command, DeleteSession) else int(tokens[command.token])
        if isinstance(command, DeleteSession):
            self._put(key, 0, now, now, {}, tokens, command.token)
            return None
        version = session["version"] if session else 0
        if command.version not in (None, version):
            return Refused(VERSION, str(version))
        if (
            not version
            and command.fields
            and not command.appends
            and set(command.fields.values()) == {None}
        ):
            self._put(key, 0, now, now, {}, tokens, command.token)
            return 0
        fields = dict(session["fields"]) if session else {}
        for field, value in command.fields.items():
            fields.pop(field, None)
            if value is not None:
                fields[field] = value
        for field, more in command.appends.items():
            before = fields.get(field)
            items = [*(before if isinstance(before, list) else []), *more.values]
            fields[field] = items if more.keep is None else items[-more.keep :]
        expires = None if command.ttl is None else now + command.ttl
        if command.extends and session is not None:
            was = session["expires"]
            expires = None if was is None or expires is None else max(was, expires)
        self._put(key, version + 1, now, expires, fields, tokens, command.token)
        return int(version) + 1

    def _put(
        self,
        key: tuple[str, str],
        version: int,
        now: float,
        expires: float | None,
        fields: dict[str, Any],
        tokens: dict[str, int],
        token: str,
    ) -> None:
        newest = dict(list({**tokens, token: version}.items())[-TOKENS_MAX:])
        self.there[key] = {
            "version": version,
            "updated": now,
            "expires": expires,
            "fields": fields,
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
        )

    def items(self, key: tuple[str, str], field: str, last: int | None, now: float) -> list[str]:
        session = self._alive(key, now)
        value = session["fields"].get(field) if session else None
        items = value if isinstance(value, list) else []
        return items if last is None else items[-last:]
