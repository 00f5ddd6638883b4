"""Start fleets of real worker processes and read their store from outside."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
sys.path[:0] = [str(HERE.parent / "process"), str(PROGRAMS)]

from process_tools import Program

from outlast import Outlast
from outlast.store.address import store_at
from outlast.store.commands import Claim, RegisterWorker, Sweep
from support.clocks import MovableClock, let_lease_run_out
from support.outside_log import LogLine, OutsideLog
from support.snapshots import Snapshot, read_snapshot
from support.stores import query
from support.waiting import wait_for_state, wait_until

T = TypeVar("T")

SETTINGS: dict[str, Any] = {
    "lease": 60,
    "heartbeat": 0.1,
    "ramp": 0,
    "death_backoff": 0.05,
    "suspect_patience": 0.5,
    "linger": 0.2,
    "returned_rate": 10_000,
    "max_attempts": 3,
    "signals": 0,
}
"""Short times, except for the lease: a process of a busy machine may get no CPU for seconds. A test that needs
a lease to run out gives a short one to the worker that is to lose it."""


class Fleet:
    """Worker processes that share a store and a folder with their outside log."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.log = folder, address, OutsideLog(folder)
        self.clock = MovableClock(folder)
        (folder / "store").write_text(address)  # where the programs look for it
        self.workers: list[Program] = []
        self.all: list[Program] = []

    # -- processes

    def start(self, *flows: str, module: str = "fleet_flows", **options: Any) -> Program:
        """Start a worker. The options are settings, or words of programs/worker.py."""
        worker = self.spawn(
            "worker.py", json.dumps({**SETTINGS, "module": module, "flows": flows, **options})
        )
        self.workers.append(worker)
        return worker

    def start_many(self, count: int, *flows: str, **options: Any) -> list[Program]:
        """Start `count` workers and wait until they are open."""
        workers = [self.start(*flows, **options) for _ in range(count)]
        for worker in workers:
            self.is_up(worker)
        return workers

    def spawn(self, name: str, *args: object) -> Program:
        program = Program(str(PROGRAMS / name), self.folder, *args)
        self.all.append(program)
        return program

    def is_up(self, worker: Program) -> Program:
        worker.wait_for_message()
        return worker

    def end(self, worker: Program) -> None:
        """Send SIGTERM and wait until the worker has closed in good order."""
        worker.terminate()
        assert worker.wait() == 0, worker.errors

    def replace_the_dead(self, *flows: str, **options: Any) -> int:
        """Start another worker for each dead one. Return how many were dead."""
        dead = [worker for worker in self.workers if worker.has_ended]
        for worker in dead:
            self.workers.remove(worker)
            self.start(*flows, **options)
        return len(dead)

    def close(self) -> None:
        for program in self.all:
            program.kill()

    # -- this process, which is not a worker

    def do(self, action: Callable[[Outlast], Awaitable[Any]], **settings: Any) -> Any:
        """Call `action` with an app of this process."""

        async def main() -> Any:
            options = {**SETTINGS, **settings}
            store = store_at(self.address, clock=self.clock, heartbeat=options["heartbeat"])
            async with Outlast(store if self.clock.is_set else self.address, **options) as app:
                return await action(app)

        return asyncio.run(main())

    def submit(self, calls: list[Any], ids: list[str], **options: Any) -> None:
        self.do(lambda app: app.submit_many(calls, ids=ids, **options))

    # -- observations

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """Query the store itself, which wakes no process and gives no sign of life."""
        return query(self.address, sql, *values)

    def statuses(self) -> Counter[str]:
        return Counter(dict(self.ask("SELECT status, count(*) FROM runs GROUP BY status")))

    def status(self, id: str) -> str:
        ((status,),) = self.ask("SELECT status FROM runs WHERE id = ?", id)
        return status

    def all_are(self, *statuses: str) -> bool:
        return set(self.statuses()) <= set(statuses)

    def wait_until(self, condition: Callable[[], T]) -> T:
        """Wait for a condition that reads the store. On a server that takes a new connection each time."""
        return wait_until(condition, self.tell, pause=self._pause)

    def wait_for_statuses(self, is_reached: Callable[[Counter[str]], bool]) -> None:
        """Wait for a condition on the number of runs in each status.

        Wait for as long as these numbers change or steps begin and end.
        """
        wait_for_state(
            lambda: (self.statuses(), len(self.log.update())),
            lambda state: is_reached(state[0]),
            self.tell,
            pause=self._pause,
        )

    def until_all_are(self, *statuses: str) -> None:
        self.wait_for_statuses(lambda counts: set(counts) <= set(statuses))

    @property
    def _pause(self) -> float:
        return 0.02 if self.address.startswith("sqlite") else 0.1

    def set_clock(self, seconds: float) -> None:
        """Move the clock of every worker that was started with `clock=True`, at the same moment."""
        self.clock.set(seconds)

    def let_lease_run_out(self, lease: float) -> None:
        """Have a worker that does not renew this lease taken for dead. Every worker has `clock=True`.

        Others live on if their leases are many times as long.
        """
        let_lease_run_out(self.address, self.clock, lease)

    def image(self) -> Snapshot:
        return read_snapshot(self.address)

    def make(self, name: str) -> None:
        """Create a file for which a program may wait."""
        (self.folder / name).touch()

    def lines(self, when: str = "before", pid: int | None = None) -> list[LogLine]:
        return [line for line in self.log.update() if line.when == when and pid in (None, line.pid)]

    def hooks(self, what: str) -> list[str]:
        """Return the ids with which a hook was called in any worker."""
        said = [word for worker in self.all for word in worker.messages]
        return sorted(word["id"] for word in said if word.get("hook") == what)

    def tell(self) -> str:
        """Return what the message of a failed assertion should show."""
        rows = self.ask(
            "SELECT id, status, worker, deaths, interruptions, ready, due, reason FROM runs"
            " WHERE status <> 'done' LIMIT 8"
        )
        errors = [f"--- {worker.pid}\n{worker.errors[-1500:]}" for worker in self.all[-4:]]
        return "\n".join([str(self.statuses()), *map(str, rows), *errors])


def assert_nothing_was_recorded_under_a_stale_fence(image: Snapshot) -> None:
    """Fail if a worker recorded something for a run that it had lost."""
    for id, journal in image.journals.items():
        void = 0
        for entry in journal:
            if entry["kind"] in ("death", "interruption", "retry", "resume", "undoing", "decision"):
                void = max(void, abs(entry["fence"]))
            else:
                assert entry["fence"] > void, f"{id}: {entry} was recorded after the run was lost"


def assert_nothing_recorded_was_redone(image: Snapshot, lines: list[LogLine]) -> None:
    """Fail if a recorded step was executed again, or a step was executed under an old fence."""
    assert_nothing_was_recorded_under_a_stale_fence(image)
    fences = image.fences()
    newest: dict[str, int] = {}
    for line in lines:
        if line.when == "before":
            recorded = fences.get((line.run, line.key), line.fence)
            assert line.fence <= recorded, f"{line} was recorded and executed again"
            assert line.fence >= newest.get(line.run, 0), f"{line} was executed under an old fence"
            newest[line.run] = line.fence
    starts = Counter(line[1:] for line in lines if line.when == "before")
    assert max(starts.values(), default=0) <= 1, "a step is executed once under each fence"


def at_once(lines: list[LogLine]) -> int:
    """Return the largest number of bodies that executed at the same time."""
    most = now = 0
    for line in lines:
        now += {"before": 1, "after": -1}.get(line.when, 0)
        most = max(most, now)
    return most


async def die_elsewhere(app: Any, *submissions: Any, backoff: float = 0.0) -> None:
    """Make runs suspects: two other workers hold them and die before anything is recorded."""
    engine, first, second = app._open, token_hex(4), token_hex(4)
    for other in (first, second):
        engine.store.acquire_liveness(other)
        await engine.writer.execute(RegisterWorker(other, "host", 1, 1e6))
    ids = tuple(submission.id for submission in submissions)
    for submission in submissions:
        await engine.writer.execute(submission._replace(worker=first))
    engine.store.release_liveness(first)
    # In one commit, so this worker cannot claim them in between.
    both = (Sweep(), Claim(second, token_hex(4), ids=ids))
    _, rows = await asyncio.gather(*map(engine.writer.execute, both))
    assert len(rows) == len(ids)
    engine.store.release_liveness(second)
    await engine.writer.execute(Sweep(backoff=backoff))
    for id in ids:
        assert (await engine.client.read(engine.store.run, id)).is_suspect
