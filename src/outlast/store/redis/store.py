"""The store in a Redis server, 6.2 and later, or Valkey: any number of processes on any number of machines.

Every batch is one call of one script, and a script is executed alone: there are no locks and no transactions to wait for. How long
what was committed stays is the server's business: see docs/redis.md.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

from outlast.errors import StoreBroken, StoreError, StoreTooNew, StoreUnavailable
from outlast.store import fork
from outlast.store.protocol import BadValue, CommitUnknown, outlook, whole_journal
from outlast.store.redis import decode, scripts, warnings
from outlast.store.redis.connection import ANSWER_SECONDS, Address, Late, Line, Lost, parse
from outlast.store.redis.encode import alone, encode, integers, more_of
from outlast.store.redis.failures import fault
from outlast.store.redis.presence import Ear, Missed
from outlast.store.rows import (
    ENDED,
    DrainRow,
    Entry,
    Message,
    Outlook,
    QueueRow,
    RunQuery,
    RunRow,
    SessionQuery,
    SessionRow,
    WorkerRow,
)
from outlast.store.verbs import LOUD, LOUD_AT_HOME, SESSION, Claim, Prune, Record, Sweep, Verb

log = logging.getLogger("outlast.store")

HERE_SECONDS = 0.05
"""How long a commit on the loop itself may take before it is left to the thread that can wait."""
REPLICA_SECONDS = 5.0
"""How long a commit waits for replicas, where it is to."""
PRESENT = "if redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('SADD', KEYS[2], ARGV[1]) end"
VOID_SECONDS = 86_400.0
"""How long it is remembered that a lost call must not be executed any more."""
FORMAT = 1
"""Of what is in the keys. Two Outlasts that know the same can share a store."""
PAGE = 1_000
"""Rows that one call looks at, at the most."""
PAGE_BYTES = 4_000_000
STATUSES = ("queued", "running", "waiting", "parked", *sorted(ENDED))


_said: set[tuple[str, str]] = set()
"""Servers and dangers that this process has warned of: once is enough."""


class RedisStore:
    def __init__(
        self, address: Address, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> None:
        self._address, self._clock = address, clock
        self.place = address.place
        self._format = f"{address.prefix}format"
        self._heartbeat = heartbeat
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer, self._reader = Line(address), Line(address)
        self._opened = False
        self._offset = 0.0
        """The server's clock less this process's monotonic one."""
        self._server = ""
        """The server's run id: another one after each start, and of each replica. Empty where it is not told."""
        self._unknown: list[str] = []
        """Calls that were lost, and may still be on their way."""
        self._prune_from = 0
        """How many that may not go stand before the next one that a Prune looks at."""
        self._renew_identity()

    @classmethod
    def at(
        cls, address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> RedisStore:
        return cls(parse(address), clock=clock, heartbeat=heartbeat)

    def _renew_identity(self) -> None:
        self._origin = uuid4().hex
        self._calls = (f"{self._origin}-{number}" for number in count(1))
        self._call = next(self._calls)
        """Names this writer's connection: what is lost with it is made void under this name."""
        self._ear = Ear(self._address, self._origin, self._note_present)
        self._missed = Missed(self._heartbeat)

    # -- opening and closing

    def open(self) -> None:
        if self._opened:
            return
        try:
            self._look_at_server()
        except BaseException as error:
            self._opened = False
            self._drop()
            if isinstance(error, Lost):
                raise StoreUnavailable(f"{self.place}: the server cannot be reached. ({error})") from error
            raise
        fork.watch(self)

    def versions(self) -> tuple[int, int]:
        line = Line(self._address)
        try:
            line.connect()
            return int(line.call("GET", self._format) or 0), FORMAT
        except Lost as error:
            raise StoreUnavailable(f"{self.place}: the server cannot be reached. ({error})") from error
        finally:
            line.drop()

    def _check_format(self) -> None:
        """What is there may be of a newer Outlast; where there is nothing, what is made now is of this one."""
        found = int(self._writer.call("GET", self._format) or 0)
        if not found:
            self._writer.call("SET", self._format, FORMAT, "NX")
        elif found > FORMAT:
            raise StoreTooNew(
                f"{self.place}: its format is {found}, this Outlast knows {FORMAT}. It was written by a newer Outlast: upgrade this "
                "one. Nothing was changed."
            )

    def _look_at_server(self) -> None:
        self._writer.connect()
        told = warnings.info(self._writer, "server")
        version = warnings.version(told)
        if version is not None and version < warnings.OLDEST:
            raise StoreBroken(
                f"{self.place}: the server is Redis {told['redis_version']}; Outlast needs 6.2 or later."
            )
        dangers = warnings.dangers(self._writer)
        if dangers and self._address.strict:
            raise StoreUnavailable(
                f"{self.place}: refused, as its address says `strict`: {' '.join(dangers)}"
            )
        for danger in dangers:
            if (self._address.server, danger) not in _said:
                _said.add((self._address.server, danger))
                log.warning("%s: %s", self._address.server, danger)
        self._server = told.get("run_id", "")
        self._check_format()
        self._opened = True
        self._read("depth", "")  # sets the clock, and shows whether scripts may be called

    def close(self) -> None:
        if not self._opened:
            return
        with self._writing:  # after a commit or a read that is under way
            self._opened = False
        with self._reading:
            pass
        for worker in self._ear.held:
            self._note_absent(worker)
        self._drop()

    def _drop(self) -> None:
        self._ear.close()
        self._writer.drop()
        self._reader.drop()
        self._renew_identity()

    def die(self) -> None:
        """For tests: close it as a killed process does, whose connections break and which cleans nothing up."""
        with self._writing, self._reading:
            self._opened = False
        self._drop()

    def locks(self) -> list[threading.Lock]:
        return [self._writing, self._reading]

    def after_fork(self, *, at_rest: bool) -> None:
        """In a forked child: let go of the parent's connections; the child must open the store anew."""
        if not at_rest:
            self._writing, self._reading = threading.Lock(), threading.Lock()
        if self._opened:
            self._opened = False
            self._ear.forget_in_child()
            self._writer.drop()
            self._reader.drop()
            self._renew_identity()

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreUnavailable(f"{self.place}: the store is not open (closed, or inherited over a fork).")

    # -- writing

    def now(self) -> float:
        return self._clock() if self._clock is not None else time.monotonic() + self._offset

    def try_commit(self, verbs: Sequence[Verb]) -> list[Any] | None:
        """Commit if that can be done without waiting for anybody here; None if not, and then nothing was written.

        It waits for the server, but not long: then the outcome is unknown until `recover` has waited for it.
        """
        if Prune in set(map(type, verbs)) or not self._writing.acquire(blocking=False):
            return None
        try:
            self._check_open()
            if not self._writer.is_open or self._writer.owes or self._unknown or self._address.wait:
                return None
            outcomes, _ = self._transact(verbs, HERE_SECONDS)
        finally:
            self._writing.release()
        return outcomes

    def commit(self, verbs: Sequence[Verb]) -> list[Any]:
        if not verbs:
            self._check_open()
            return []
        kinds = set(map(type, verbs))
        if Sweep in kinds:
            self._look_for_missing()
        with self._writing:
            self._check_open()
            outcomes, rings = self._transact(verbs, ANSWER_SECONDS)
            if Prune in kinds:
                self._finish_prunes(verbs, outcomes)
        if rings or not kinds.isdisjoint(LOUD_AT_HOME):
            self._ear.ring()
        return outcomes

    def _transact(self, verbs: Sequence[Verb], seconds: float) -> tuple[list[Any], bool]:
        kinds = set(map(type, verbs))
        arguments = encode(verbs)
        self._meet_server()
        self._make_void()
        header = self._commit_header()
        if not kinds.isdisjoint(LOUD):
            header["loud"] = True
        if not kinds.isdisjoint((Sweep, Claim)):
            header["gone"] = self._gone()
        answer = self._send(kinds, header, arguments, seconds)
        return self._outcomes(verbs, answer)

    def _send(
        self, kinds: set[type], header: dict[str, Any], arguments: list[Any], seconds: float = ANSWER_SECONDS
    ) -> Any:
        script = scripts.record_script() if kinds == {Record} else scripts.commit_script()
        try:
            answer = self._writer.run(
                script, self._address.prefix, json.dumps(header), *arguments, seconds=seconds
            )
            if self._address.wait and answer[0] == "done":
                self._wait_for_replicas()
        except Late as error:
            raise CommitUnknown(f"{self.place}: a commit takes its time ({error}).") from error
        except Lost as error:
            self._give_up_call()
            raise CommitUnknown(
                f"{self.place}: the connection was lost in the middle of a commit ({error})."
            ) from error
        except StoreError:
            raise
        except BaseException:  # an interrupt: nobody knows how far it came
            self._give_up_call()
            raise
        return answer

    def _give_up_call(self) -> None:
        self._unknown.append(self._call)
        self._call = next(self._calls)

    def _finish_prunes(self, verbs: Sequence[Verb], outcomes: list[Any]) -> None:
        """One call looks at a few hundred runs, so that others are served in between. What is left of a Prune is done in more of them.

        From where the last one ended to the end, and from the beginning to there: what may not go (children of parents that have
        not ended) may be much, and it is not looked at again for each batch of what stands behind it.
        """
        for number, verb in enumerate(verbs):
            if isinstance(verb, Prune):
                outcomes[number] = self._finish_prune(verb, outcomes[number])

    def _finish_prune(self, prune: Prune, done: decode.Pruned) -> int:
        count, at, more = done.gone, done.passed, bool(done.more)
        before = self._prune_from if more and not prune.items and not prune.sessions else 0
        turn = at if before > at else None
        at, until = max(at, before), math.inf
        while count < prune.limit and (more or turn is not None):
            if not more and turn is not None:  # at the end: now what stands before
                at, turn, until = turn, None, before
            done = self._prune_more(prune, count, at)
            count, at, more = count + done.gone, done.passed, bool(done.more) and done.passed < until
        if not prune.items and not prune.sessions:
            self._prune_from = at if more else 0
        return count

    def _prune_more(self, prune: Prune, count: int, start: int) -> decode.Pruned:
        try:
            answer = self._send({Prune}, self._commit_header(), more_of(prune, count, start))
            outcomes, _ = self._outcomes([prune], answer)
        except StoreUnavailable as error:  # the batch is written, and can be committed again
            raise CommitUnknown(str(error)) from error
        pruned: decode.Pruned = outcomes[0]
        return pruned

    def _outcomes(self, verbs: Sequence[Verb], answer: Any) -> tuple[list[Any], bool]:
        match answer:
            case ["done", now, rings, answers]:
                self._set_clock(now)
                return decode.outcomes(verbs, answers), rings == "1"
            case ["fault", text, _, failed]:
                raise fault(text, self.place, torn=failed != "0")
            case _:  # made void by `recover`, and nevertheless answered: nothing of it was written
                self._call = next(self._calls)
                raise StoreUnavailable(f"{self.place}: this call was given up.")

    def _meet_server(self) -> None:
        """After a new connection: who it is."""
        if not self._writer.is_open:
            try:
                self._writer.connect()
                self._server = warnings.info(self._writer, "server").get("run_id", "")
            except Lost as error:
                raise StoreUnavailable(f"{self.place}: the server cannot be reached. ({error})") from error

    def _wait_for_replicas(self) -> None:
        """Lost, whatever goes wrong: it is written, and not known by whom."""
        try:
            reached = self._writer.call("WAIT", self._address.wait, int(REPLICA_SECONDS * 1000))
        except StoreError as error:
            raise Lost(str(error)) from error
        if reached < self._address.wait:
            self._writer.drop()
            raise Lost(f"{reached} of {self._address.wait} replicas have it")

    def recover(self) -> None:
        """What was lost on its way must not be executed any more: from now on the script knows its name and refuses it."""
        with self._writing:
            self._check_open()
            try:
                self._writer.catch_up()
            except Lost:
                self._give_up_call()
            self._meet_server()
            self._make_void()

    def _make_void(self) -> None:
        key = f"{self._address.prefix}void"
        try:
            for call in tuple(self._unknown):
                now = time.time()
                self._writer.call("ZADD", key, now, call)
                self._writer.call("ZREMRANGEBYSCORE", key, "-inf", now - VOID_SECONDS)
                self._unknown.remove(call)
        except Lost as error:
            raise StoreUnavailable(f"{self.place}: the server cannot be reached. ({error})") from error

    # -- reading

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {"db": str(self._address.db)}
        if self._clock is not None:
            header["now"] = self._clock()
        return header

    def _commit_header(self) -> dict[str, Any]:
        return self._header() | {"call": self._call, "origin": self._origin, "server": self._server}

    def _set_clock(self, now: str) -> None:
        self._offset = float(now) - time.monotonic()

    def _read(self, name: str, *arguments: str | int) -> Any:
        """A read may be repeated: where a connection has gone stale, a new one is tried once."""
        try:
            sent = [str(argument).encode() for argument in arguments]
        except UnicodeEncodeError as error:
            raise BadValue(f"a text cannot be stored: {error}") from None
        with self._reading:
            self._check_open()
            script = scripts.read_script()
            for again in (False, True):
                stale = self._reader.is_open
                try:
                    header = json.dumps(self._header())
                    now, answer = self._reader.run(script, self._address.prefix, header, name, *sent)
                except Lost as error:
                    self._missed.forget()
                    if again or not stale:
                        raise StoreUnavailable(
                            f"{self.place}: the server cannot be reached. Nothing acknowledged is lost; the runs are resumable. ({error})"
                        ) from error
                else:
                    self._set_clock(now)
                    return answer
        raise AssertionError("unreachable")

    def run(self, id: str) -> RunRow | None:
        flat = self._read("run", id)
        return decode.run_row(flat) if flat else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        """A walk in pages, so that it keeps nobody waiting however many runs there are."""
        rows: list[RunRow] = []
        before = query.before_pk
        asked = {name: value for name, value in query._asdict().items() if value is not None}
        del asked["statuses"]
        of = query.statuses or STATUSES
        while len(rows) < query.limit:
            page = {"of": of, "look": PAGE, "limit": min(query.limit - len(rows), PAGE)}
            if query.statuses:
                page["statuses"] = dict.fromkeys(query.statuses, True)
            if before is not None:
                page["before"] = before
            at, found = self._read("runs", json.dumps(asked | page, ensure_ascii=False))
            rows += map(decode.run_row, found)
            if at is None:
                break
            before = int(at)
        return rows

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        entries: list[Entry] = []
        run, after, limit = integers(run, after, limit)
        while len(entries) < limit:
            last = entries[-1].seq if entries else after
            page = decode.entries(
                self._read("journal", run, last, min(limit - len(entries), PAGE), PAGE_BYTES)
            )
            if not page:
                break
            entries += page
        return entries

    def last_seq(self, run: int) -> int:
        return int(self._read("last_seq", *integers(run)))

    def has_dealt(self, id: str) -> bool:
        return bool(self._read("has_dealt", id) == "1")

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for start in range(0, len(keys), PAGE):
            flat = self._read("done", *integers(run), *keys[start : start + PAGE])
            found |= {
                key: decode.entry(0, text).value for key, text in zip(flat[::2], flat[1::2], strict=True)
            }
        return found

    def done_count(self, run: int) -> int:
        return int(self._read("done_count", *integers(run)))

    def history(self, run: int) -> list[Entry]:
        if not self.done_count(run):
            return whole_journal(self, run)
        return sorted(decode.entries(self._read("history", *integers(run))))

    def messages(self, run: int, after: int = 0) -> list[Message]:
        texts = self._read("messages", *integers(run, after))
        return [decode.message(number, text) for number, text in enumerate(texts, after + 1)]

    def progress(self, run: int) -> dict[str, str]:
        return decode.progress(self._read("progress", *integers(run)))

    def workers(self) -> list[WorkerRow]:
        return sorted(map(decode.worker_row, self._read("workers")), key=lambda row: (row.started, row.id))

    def asked(self, worker: str) -> str | None:
        why: str | None = self._read("asked", worker)
        return why

    def drains(self, limit: int = 20) -> list[DrainRow]:
        return (
            [decode.drain_row(found) for found in self._read("drains", *integers(limit))] if limit > 0 else []
        )

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {}
        for start in range(0, len(pairs), PAGE):
            some = pairs[start : start + PAGE]
            lists = self._read("durations", *(name for pair in some for name in pair))
            for (workflow, step), texts in zip(some, lists, strict=True):
                found[workflow, step] = [float(text) for text in texts]
        return found

    def look(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Outlook:
        ready, suspect, text = self._read("look", *dict.fromkeys(queues))
        due = None if text is None else float(text)
        return outlook(set(ready), set(suspect), due, self.now(), workflows)

    def queues(self) -> list[QueueRow]:
        return [decode.queue_row(found) for found in self._read("queues")]

    def depth(self, queue: str) -> int:
        return int(self._read("depth", queue))

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return [(int(run), int(fence), id) for run, fence, id in self._read("held", worker)]

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return [(id, why) for id, why in self._read("cancels", worker)]

    def session(self, id: str, space: str = SESSION) -> SessionRow | None:
        found = self._read("session", space, id)
        return decode.session_row(found) if found else None

    def items(self, session: str, field: str, last: int | None = None, space: str = SESSION) -> list[str]:
        if last is not None and last <= 0:
            return []
        found: list[str] = self._read("items", space, session, field, "" if last is None else last)
        return found

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        rows: list[SessionRow] = []
        skip = 0
        asked: dict[str, Any] = {"space": query.space, "prefix": query.prefix, "look": PAGE}
        if query.before is not None:
            asked["before"], asked["id"] = query.before
        while len(rows) < query.limit:
            looked, found = self._read("sessions", json.dumps(asked | {"skip": skip}, ensure_ascii=False))
            rows += map(decode.session_row, found)
            skip += int(looked)
            if int(looked) < PAGE:
                break
        return rows[: query.limit]

    # -- life signs

    def measured(self) -> list[tuple[str, str]]:
        return sorted((workflow, step) for workflow, step in map(json.loads, self._read("measured")))

    def dead_workers(self) -> list[str]:
        dead, _ = self._look_for_missing()
        return [*dict.fromkeys([*dead, *self._gone()])]

    def _look_for_missing(self) -> tuple[list[str], list[str]]:
        dead, missing, (server, _) = self._read("dead_workers")
        self._missed.see(set(missing) - self._ear.held if server == self._server else ())
        return dead, missing

    def _gone(self) -> list[str]:
        return [worker for worker in self._missed.gone() if worker not in self._ear.held]

    def listen(self, bell: Callable[[], None]) -> None:
        self._ear.listen(bell)

    def hold(self, worker: str) -> None:
        """Where the server cannot be reached, or does not tell which one it is, leases alone say who is alive."""
        self._check_open()
        try:
            worker.encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"a text cannot be stored: {error}") from None
        self._ear.hold(worker)

    def _note_present(self, worker: str) -> None:
        """If it is enlisted its connection tells of it from now on (else Enlist says so); a server that does not say which one it
        is cannot be trusted with that."""
        if self._server:
            keys = (f"{self._address.prefix}workers", f"{self._address.prefix}present")
            self._note_presence("EVAL", PRESENT, 2, *keys, worker)

    def let_go(self, worker: str) -> None:
        if worker in self._ear.held:
            self._note_absent(worker)
            self._ear.let_go(worker)

    def _note_absent(self, worker: str) -> None:
        self._note_presence("SREM", f"{self._address.prefix}present", worker)

    def _note_presence(self, *command: str | int) -> None:
        with self._reading:
            try:
                self._reader.call(*command)
            except (Lost, StoreError) as error:
                log.debug("%s: who is present was not noted: %s", self.place, error)

    # -- for tests

    def reopen(self, id: str) -> None:
        """Make an ended run claimable as it stands, so that its journal can be replayed once more; of one that was undone, the undo."""
        row = self.run(id)
        assert row is not None, f"there is no run {id!r}"
        undoing: str | None = None
        for entry in whole_journal(self, row.pk):
            if entry.kind == "undoing":
                undoing = entry.value
            elif entry.kind == "retry" and not json.loads(entry.value or "{}").get("undoing"):
                undoing = None
        verb = {"id": id} if undoing is None else {"id": id, "undoing": undoing}
        with self._writing:
            self._check_open()
            answer = self._send(set(), self._commit_header(), alone("Reopen", verb))
        assert answer[0] == "done", answer
