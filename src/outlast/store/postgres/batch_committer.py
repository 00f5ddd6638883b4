"""Commit batches: call the server's commit function, and repeat the call where that is safe.

A writer is registered in the server under an id and an epoch. Every call carries them, and the
server refuses a call with an old epoch. So beginning a new epoch shuts out a call whose outcome is
unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg

from outlast.store.commands import Command, Prune, SubmitMany
from outlast.store.deadline import time_left
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Connection
from outlast.store.postgres.dispatch import Call, call, record_values
from outlast.store.postgres.failures import AGAIN, LOCKED, SHUT_OUT, translate
from outlast.store.postgres.locked_rows import blocked_message, locked_subjects
from outlast.store.postgres.outcomes import Answer
from outlast.store.postgres.pruning import PruneParts
from outlast.store.postgres.scan_cursors import ScanCursorCache
from outlast.store.postgres.server_clock import ServerClock
from outlast.store.postgres.statements import StatementNames
from outlast.store.protocol import BadValue, Blocked

LOCK_WAIT_HERE = 0.005
"""How long a commit on the event loop waits for each lock."""
LOCK_WAITS = (0.3, 1.0, 2.0)
"""How long each attempt of a batch waits for a row lock. The next attempt follows only if the rows
are free again. Outlast holds row locks for milliseconds; another program may hold them for minutes.
"""
CANCELLED = "57014"
LONG_CALLS = 2.5
"""The bound, in multiples of `call_timeout`, on a batch that deletes or submits thousands of rows.
It exceeds the server's bound on every statement (SERVER_SHARE), so the server answers first.
"""
AGAIN_MAX = 6
"""How often a call is attempted before a deadlock counts as an error."""
RECOVER_SECONDS_MAX = 5
"""How long `recover` waits for a lost call that still executes in the server."""


class BatchCommitter:
    """Commit batches over one connection, under one writer id and its epoch.

    It is not safe for threads: its caller holds the lock of the connection.
    """

    def __init__(
        self,
        connection: Connection,
        address: Address,
        named: StatementNames,
        clock: ServerClock,
        scan_cursors: ScanCursorCache,
    ) -> None:
        self._connection = connection
        self._address = address
        self._named = named
        self._clock = clock
        self._scan_cursors = scan_cursors
        self.prunes = PruneParts()
        self.id = uuid4().hex
        self.epoch = 0
        """0 until the first commit. A store that only reads needs none, nor the right to write."""

    # -- the epoch

    def _begin_epoch(self) -> None:
        db = self._connection.db()
        with db.transaction():
            db.execute(f"SET LOCAL lock_timeout = '{RECOVER_SECONDS_MAX}s'")
            self.epoch = self._connection.execute(self._named(sql.EPOCH), (self.id,))[0][0]

    def _renew_epoch(self) -> None:
        """Register under a new id after the server forgot this writer in a long silence.

        The new writer has nothing in flight.
        """
        self.id = uuid4().hex
        try:
            self._begin_epoch()
        except psycopg.Error as error:
            raise translate(error, self._address, sent=False, usable=True) from error

    def recover(self) -> None:
        """Shut out the call whose outcome is unknown, on a new connection.

        What the call has committed stays. From now on it can commit nothing more.
        """
        self._connection.drop()
        try:
            self._begin_epoch()
        except (psycopg.Error, OSError) as error:
            self._connection.drop()
            raise translate(error, self._address, sent=False, usable=False) from error

    def close(self) -> None:
        """Deregister this writer. If this fails, the server forgets the writer in time."""
        with suppress(psycopg.Error):
            if self.epoch and self._connection.is_usable:
                self._connection.execute(self._named(sql.GONE), (self.id,))

    # -- committing

    def try_record(self, commands: Sequence[Command], seconds: float | None = None) -> bool:
        """Try to write a lone new entry with one plain statement.

        Return False if it wrote nothing; the full commit then finds out why.
        """
        if len(commands) != 1 or not self._connection.is_prepared:
            return False
        values = record_values(commands[0], self.id, self.epoch)
        if values is None:
            return False
        try:
            return self._connection.record(values, seconds)
        except psycopg.Error as error:
            if self._connection.is_usable:
                return False
            raise translate(error, self._address, sent=True, usable=False) from error

    def commit(
        self, commands: Sequence[Command], call_timeout: float, seconds: float | None = None
    ) -> Answer | None:
        """Call the commit function. Repeat the call after a deadlock or a short lock wait.

        `seconds` bounds the call on the event loop. With it, return None if a lock or a deadlock
        stopped the call: nothing was written. Raise Blocked if another program keeps a row locked.
        """
        scan_cursors = self._scan_cursors.now()
        sent = self._encode(commands, scan_cursors)
        lock_waits = iter(_lock_waits(call_timeout) if seconds is None else [LOCK_WAIT_HERE])
        lock_wait = next(lock_waits)
        long = seconds is None and not {Prune, SubmitMany}.isdisjoint(map(type, commands))
        seconds_max = call_timeout * LONG_CALLS if long else seconds
        turn = 1
        while True:
            try:
                answer = self._call(sent, lock_wait, seconds_max)
            except psycopg.Error as error:
                definite = self._connection.is_usable
                if definite and seconds is not None and error.sqlstate in (*AGAIN, LOCKED):
                    return None
                if definite and error.sqlstate in AGAIN and turn < AGAIN_MAX:
                    time.sleep(random.uniform(0.0, 0.001 * 2**turn))  # noqa: S311
                    turn += 1
                    continue
                too_long = long and (not definite or error.sqlstate == CANCELLED)
                if too_long and self.prunes.shrink() and definite:
                    sent = self._encode(commands, scan_cursors)
                    continue
                if definite and error.sqlstate in (LOCKED, CANCELLED):
                    locked = self._locked(commands)
                    longer = next(lock_waits, None) if len(commands) > 1 else None
                    if locked or longer is None:
                        message = blocked_message(self._address.place, error, self._address)
                        raise Blocked(message, locked) from error
                    lock_wait = longer
                    continue
                if definite and error.sqlstate == SHUT_OUT and turn < AGAIN_MAX:
                    self._renew_epoch()
                    turn += 1
                    continue
                raise translate(error, self._address, sent=True, usable=definite) from error
            self._learn(commands, answer, floored=scan_cursors is not None)
            return answer

    def _learn(self, commands: Sequence[Command], answer: Answer, *, floored: bool) -> None:
        """Note the server's time, and where scans and prunes of the batch stopped."""
        self._clock.learn(answer.now)
        for scan in answer.scans:
            self._scan_cursors.learn(*scan, answer.now, floored=floored)
        prunes = (command for command in commands if type(command) is Prune)
        for command, place in zip(prunes, answer.places, strict=True):
            self.prunes.stopped(command, place)

    def _encode(self, commands: Sequence[Command], scan_cursors: Any) -> Call:
        parts = [self.prunes.part(command) for command in commands]
        return call(parts, scan_cursors, self.prunes.position_of)

    def _locked(self, commands: Sequence[Command]) -> frozenset[tuple[str, Any]]:
        try:
            return locked_subjects(self._connection, self._named, commands)
        except psycopg.Error as error:
            usable = self._connection.is_usable
            raise translate(error, self._address, sent=False, usable=usable) from error

    def _call(self, sent: Call, lock_wait: float, seconds: float | None) -> Answer:
        try:
            self._connection.db()
            if not self.epoch:
                self._begin_epoch()
        except (psycopg.Error, OSError) as error:
            raise translate(error, self._address, sent=False, usable=False) from error
        at = self._clock.to_send()
        parts = (
            self.id,
            str(self.epoch),
            None if at is None else repr(at),
            f"{max(1, int(lock_wait * 1000))}ms",
            sent.runs,
            sent.needs,
            sent.groups,
        )
        try:
            values = [None if part is None else part.encode() for part in parts]
        except UnicodeEncodeError as error:
            raise BadValue(str(error)) from error
        return Answer(self._connection.call(values, seconds), sent.shape)


def _lock_waits(call_timeout: float) -> list[float]:
    """Return how long each attempt waits for a row lock.

    The server gives up before the client does.
    """
    most = time_left(call_timeout) / 2
    return [wait for wait in LOCK_WAITS if wait <= most] or [most]
