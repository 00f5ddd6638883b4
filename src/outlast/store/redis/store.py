"""Store runs in a Redis server (6.2 or later) or Valkey.

Any number of processes on any number of hosts can share it. Every batch is one call of one script,
and the server executes scripts one at a time, so there are no locks and no transactions to wait
for. How long committed data survives depends on the server's settings: see docs/redis.md.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outlast.errors import StoreError, StoreTooNew, StoreUnavailable
from outlast.store import fork_guard
from outlast.store.commands import Claim, Command, Prune, Record, Sweep
from outlast.store.deadline import acquired, time_left, until
from outlast.store.protocol import BadValue, CommitUnknown, left_as_it_is
from outlast.store.redis import scripts, server_check
from outlast.store.redis.address import Address, parse
from outlast.store.redis.call_names import CallNames
from outlast.store.redis.connection import Late, Lost, RedisConnection
from outlast.store.redis.dispatch import encode, more_of
from outlast.store.redis.failures import away, fault, wrong_address
from outlast.store.redis.listener import Listener
from outlast.store.redis.liveness import MissedHeartbeats
from outlast.store.redis.outcomes import Pruned, decode_outcomes
from outlast.store.redis.pruning import PruneCursor
from outlast.store.redis.reads import Reads
from outlast.store.topics import Topic, news_of

log = logging.getLogger("outlast.store")

HERE_SECONDS = 0.05
"""How long a commit on the event loop may take before the thread that may block handles it."""
REPLICA_SECONDS = 5.0
"""How long a commit waits for replicas, if the address asks for them."""
PRESENT = "if redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('SADD', KEYS[2], ARGV[1]) end"
FORMAT = 1
"""The format of the keys. Releases that know the same format can share a store."""
ABSENT_SECONDS = 1.0
"""How long a deregistering worker waits for the server to note that it is gone. Without the note,
other processes find out by themselves.
"""


class RedisStore(Reads):
    """Keep runs, entries and queues under one prefix of a Redis database."""

    migrates = True

    def __init__(
        self, address: Address, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> None:
        super().__init__(address, clock, MissedHeartbeats(heartbeat))
        self._format = f"{address.prefix}format"
        self._heartbeat = heartbeat
        self._writing = threading.Lock()
        self._writer = RedisConnection(address)
        self._server = ""
        """The server's run id. It changes at every start and differs between replicas. It is empty
        if the server does not report it.
        """
        self._calls = CallNames()
        self._prune_cursor = PruneCursor()
        self._build_listener()

    @classmethod
    def at(
        cls, address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> RedisStore:
        return cls(parse(address), clock=clock, heartbeat=heartbeat)

    def _renew_identity(self) -> None:
        self._calls.begin()
        self._build_listener()

    def _build_listener(self) -> None:
        self._listener = Listener(self._address, self._calls.origin, self._note_present)
        self._notifier = self._listener.notifier
        self._liveness = self._listener.liveness
        self._missed = MissedHeartbeats(self._heartbeat)

    # -- opening and closing

    def open(self) -> None:
        if self._opened:
            return
        self._writer.seconds_max = self._reader.seconds_max = self.call_timeout
        try:
            self._check_server()
        except BaseException as error:
            self._opened = False
            self._drop()
            if isinstance(error, Lost):
                raise away(error, self.place) from error
            if isinstance(error, StoreError) and (wrong := wrong_address(error)) is not None:
                raise wrong from error
            raise
        fork_guard.watch(self)

    def versions(self) -> tuple[int, int]:
        line = RedisConnection(self._address, self.call_timeout)
        try:
            line.connect()
            return int(line.call("GET", self._format) or 0), FORMAT
        except Lost as error:
            raise away(error, self.place) from error
        except StoreError as error:
            if (wrong := wrong_address(error)) is not None:
                raise wrong from error
            raise
        finally:
            line.drop()

    def _check_format(self) -> None:
        """Raise StoreTooNew if the keys have a newer format. Set the format of an empty store."""
        found = int(self._writer.call("GET", self._format) or 0)
        if not found and not self.migrates:
            raise left_as_it_is(self.place, 0, FORMAT)
        if not found:
            self._writer.call("SET", self._format, FORMAT, "NX")
        elif found > FORMAT:
            raise StoreTooNew(
                f"{self.place}: its format is {found}, this Outlast supports up to {FORMAT}. It "
                "was "
                "written by a newer Outlast: upgrade this "
                "one. Nothing was changed."
            )

    def _check_server(self) -> None:
        self._writer.connect()
        self._server = server_check.check(self._writer, self._address)
        self._check_format()
        self._opened = True
        # This sets the clock, and shows whether this user may call scripts.
        self._read("depth", "")

    def close(self) -> None:
        if not self._opened:
            return
        # Wait for a commit or a read in flight.
        with self._writing:
            self._opened = False
        with self._reading:
            pass
        if self._reader.is_open:
            for worker in self._liveness.held:
                self._note_absent(worker)
        self._drop()

    def _drop(self) -> None:
        self._listener.close()
        self._writer.drop()
        self._reader.drop()
        self._renew_identity()

    def locks(self) -> list[threading.Lock]:
        return [self._writing, self._reading]

    def after_fork(self, *, at_rest: bool) -> None:
        """Drop the parent's connections in a forked child. The child must open the store again."""
        if not at_rest:
            self._writing, self._reading = threading.Lock(), threading.Lock()
        if self._opened:
            self._opened = False
            self._listener.forget_in_child()
            self._writer.drop()
            self._reader.drop()
            self._renew_identity()

    # -- writing

    def try_commit(self, commands: Sequence[Command]) -> list[Any] | None:
        """Commit if there is nothing to wait for but the server's answer.

        Return None otherwise: nothing was written. Wait at most HERE_SECONDS for the answer, then
        raise CommitUnknown; `recover` waits for it.
        """
        if Prune in set(map(type, commands)) or not self._writing.acquire(blocking=False):
            return None
        try:
            self._check_open()
            if not self._writer.is_open or self._writer.owes:
                return None
            if self._calls.lost or self._address.wait:
                return None
            outcomes, _ = self._transact(commands, HERE_SECONDS)
        finally:
            self._writing.release()
        return outcomes

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            self._check_open()
            return []
        kinds = set(map(type, commands))
        if Sweep in kinds:
            self._find_missing()
        with self._writing:
            self._check_open()
            outcomes, notifies = self._transact(commands)
            if Prune in kinds:
                self._finish_prunes(commands, outcomes)
        self._notifier.notify(news_of(kinds, notifies=notifies).here)
        return outcomes

    def _transact(
        self, commands: Sequence[Command], seconds: float | None = None
    ) -> tuple[list[Any], bool]:
        kinds = set(map(type, commands))
        arguments = encode(commands)
        self._meet_server()
        self._void_lost_calls()
        header = self._commit_header()
        for topic in news_of(kinds, notifies=False).elsewhere:
            header["loud" if topic is Topic.CHANGES else "streams"] = True
        if not kinds.isdisjoint((Sweep, Claim)):
            header["gone"] = self._gone()
        answer = self._send(kinds, header, arguments, seconds)
        return self._outcomes(commands, answer)

    def _send(
        self,
        kinds: set[type],
        header: dict[str, Any],
        arguments: list[Any],
        seconds: float | None = None,
    ) -> Any:
        script = scripts.record_script() if kinds == {Record} else scripts.commit_script()
        try:
            answer = self._writer.run(
                script, self._address.prefix, json.dumps(header), *arguments, seconds=seconds
            )
            if self._address.wait and answer[0] == "done":
                self._wait_for_replicas()
        except Late as error:
            raise CommitUnknown(f"{self.place}: a commit is taking too long ({error}).") from error
        except Lost as error:
            self._calls.give_up()
            raise CommitUnknown(
                f"{self.place}: the connection was lost in the middle of a commit ({error})."
            ) from error
        except StoreError:
            raise
        except BaseException:
            # An interrupt leaves the outcome unknown.
            self._calls.give_up()
            raise
        return answer

    def _finish_prunes(self, commands: Sequence[Command], outcomes: list[Any]) -> None:
        """Replace the outcome of each Prune's first call by that of the whole Prune."""
        for number, command in enumerate(commands):
            if isinstance(command, Prune):
                outcomes[number] = self._prune_cursor.finish(
                    command, outcomes[number], partial(self._prune_more, command)
                )

    def _prune_more(self, prune: Prune, count: int, start: int) -> Pruned:
        try:
            answer = self._send({Prune}, self._commit_header(), more_of(prune, count, start))
            outcomes, _ = self._outcomes([prune], answer)
        except StoreUnavailable as error:
            # The batch is written, and may be committed again.
            raise CommitUnknown(str(error)) from error
        pruned: Pruned = outcomes[0]
        return pruned

    def _outcomes(self, commands: Sequence[Command], answer: Any) -> tuple[list[Any], bool]:
        match answer:
            case ["done", now, notifies, answers]:
                self._set_clock(now)
                return decode_outcomes(commands, answers), notifies == "1"
            case ["fault", text, _, failed]:
                raise fault(text, self.place, torn=failed != "0")
            case _:
                # `recover` voided this call before the server executed it. It wrote nothing.
                self._calls.renew()
                raise StoreUnavailable(
                    f"{self.place}: this call was abandoned before the server executed it. "
                    "Nothing was written."
                )

    def _meet_server(self) -> None:
        """Connect if there is no connection, and read the server's run id."""
        if not self._writer.is_open:
            try:
                self._writer.connect()
                self._server = server_check.run_id(self._writer)
            except Lost as error:
                raise away(error, self.place) from error

    def _wait_for_replicas(self) -> None:
        """Wait until enough replicas have the commit.

        Raise Lost on any failure: the commit is written, but how many replicas have it is unknown.
        """
        try:
            seconds = min(REPLICA_SECONDS, time_left(self.call_timeout) / 2)
            reached = self._writer.call("WAIT", self._address.wait, int(seconds * 1000))
        except StoreError as error:
            raise Lost(str(error)) from error
        if reached < self._address.wait:
            self._writer.drop()
            raise Lost(f"{reached} of {self._address.wait} replicas have it")

    def recover(self) -> None:
        """Void the calls that were lost on the way.

        From now on the script refuses them by name.
        """
        with self._writing:
            self._check_open()
            try:
                self._writer.catch_up()
            except Lost:
                self._calls.give_up()
            self._meet_server()
            self._void_lost_calls()

    def _void_lost_calls(self) -> None:
        try:
            self._calls.void_lost(self._writer, self._address.prefix)
        except Lost as error:
            raise away(error, self.place) from error

    def _commit_header(self) -> dict[str, Any]:
        calls = self._calls
        return self._header() | {
            "call": calls.current,
            "origin": calls.origin,
            "server": self._server,
        }

    # -- liveness and notification

    def measured(self) -> list[tuple[str, str]]:
        return sorted(
            (workflow, step) for workflow, step in map(json.loads, self._read("measured"))
        )

    def dead_workers(self) -> list[str]:
        dead, _ = self._find_missing()
        return [*dict.fromkeys([*dead, *self._gone()])]

    def _find_missing(self) -> tuple[list[str], list[str]]:
        dead, missing, (server, _) = self._read("dead_workers")
        self._missed.see(set(missing) - self._liveness.held if server == self._server else ())
        return dead, missing

    def _gone(self) -> list[str]:
        return [worker for worker in self._missed.gone() if worker not in self._liveness.held]

    def listen(self, on_change: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        self._notifier.listen(on_change, topic)

    def acquire_liveness(self, worker: str) -> None:
        """Show the server, by a connection, that the worker is alive.

        If the server cannot be reached, or does not report its run id, only leases say which
        workers are alive. Raise BadValue for an id that cannot be stored.
        """
        self._check_open()
        try:
            worker.encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"a text cannot be stored: {error}") from None
        self._liveness.acquire(worker)

    def _note_present(self, worker: str) -> None:
        """Note that a registered worker's connection proves that it is alive.

        For a worker that is not registered yet, RegisterWorker notes it. A server that does not
        report its run id cannot be trusted with that, so nothing is noted.
        """
        if self._server:
            keys = (f"{self._address.prefix}workers", f"{self._address.prefix}present")
            self._note_presence("EVAL", PRESENT, 2, *keys, worker)

    def release_liveness(self, worker: str) -> None:
        if worker in self._liveness.held:
            self._note_absent(worker)
            self._liveness.release(worker)

    def _note_absent(self, worker: str) -> None:
        with until(time.monotonic() + ABSENT_SECONDS):
            self._note_presence("SREM", f"{self._address.prefix}present", worker)

    def _note_presence(self, *command: str | int) -> None:
        try:
            with acquired(self._reading, self.call_timeout, self.place):
                self._reader.call(*command)
        except (Lost, StoreError) as error:
            log.debug("%s: the presence of a worker was not recorded: %s", self.place, error)
