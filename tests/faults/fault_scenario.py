"""Run two workers on one store through a list of faults, and judge the outcome by an outside ledger."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from fault_flows import CLOCK, HEARTBEAT, double, has_own_clock, result_of, stepped

from outlast import Outlast, StoreError, StoreUnavailable
from support.fault_proxy import FaultProxy
from support.outside_log import LogLine, OutsideLog
from support.processes import Program, clean_environment
from support.snapshots import Snapshot, read_snapshot
from support.waiting import WAIT_SECONDS, wait_until

CALL_SECONDS = 2.0
"""The bound on one store call: see `Settings.call_timeout`. All other times grow with it. A machine that is
so slow that calls take longer without a fault needs a greater one."""
LEASE_SECONDS = 4 * CALL_SECONDS
PATIENCE_SECONDS = 8 * CALL_SECONDS
SETTINGS: dict[str, float] = {
    "lease": LEASE_SECONDS,
    "store_patience": PATIENCE_SECONDS,
    "heartbeat": HEARTBEAT,
    "poll": 0.5,
    "ramp": 0,
    "linger": 0.2,
    "death_backoff": 0.05,
    "suspect_patience": 0.5,
    "returned_rate": 10_000,
}
BRIEF_SECONDS = 2.5 * CALL_SECONDS
"""Longer than a call and its repeat may take."""
BRIEF_DURATIONS = (0.3 * CALL_SECONDS, 1.2 * CALL_SECONDS)
"""How long a fault of the short mixture lasts: shorter than a call, and longer than it."""
DURATIONS = (0.3 * CALL_SECONDS, BRIEF_SECONDS, 1.5 * LEASE_SECONDS, 1.3 * PATIENCE_SECONDS)
"""How long a fault of the long form lasts: shorter than a call, than a lease, than patience, and longer than all."""
LOOK_SECONDS = 0.1
"""Between two looks at what a scenario waits for: looking costs CPU time."""
WORKERS = 2
STEPS = 5
RUNS_BEFORE, RUNS_DURING = 4, 2
"""Runs that are submitted before each fault, and while it lasts."""
FLOWS = Path(__file__).with_name("fault_flows.py")

Fault = Callable[["Scenario"], AbstractContextManager[None]]
"""Injects a fault on entry and heals it on exit."""


class Scenario:
    """A store behind faults, its workers, a client that submits runs, and the ledger of executed steps."""

    def __init__(
        self,
        folder: Path,
        address: str,
        direct: str,
        chance: random.Random,
        *,
        proxy: FaultProxy | None = None,
        server: Any = None,
    ) -> None:
        """`direct` is the same store as `address`, past the proxy. `server` may be frozen and restarted."""
        self.folder, self.address, self.direct, self.chance = folder, address, direct, chance
        self._proxy, self.server = proxy, server
        self.ledger = OutsideLog(folder)
        self.workers: list[Program] = []
        self.exits: list[int] = []
        """The exit codes of workers that ended before the scenario did."""
        self.workers_may_end = False
        """A fault was injected that ends workers. Each is replaced, as a supervisor does."""
        self.story: list[str] = []
        """What was done, for the message of a failure."""
        self._began = time.monotonic()
        self._numbers: dict[str, int] = {}
        self._client = Client(address, folder / CLOCK)

    @property
    def proxy(self) -> FaultProxy:
        assert self._proxy is not None, "this store has no proxy"
        return self._proxy

    def tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:.1f} s: {what}")

    # -- acting

    def play(
        self,
        *faults: Fault,
        seconds: Callable[[], float] = lambda: BRIEF_SECONDS,
        until_progress: bool = False,
    ) -> None:
        """Submit runs, inject each fault while they execute, and wait for the end of everything.

        With `until_progress` a fault also ends as soon as the runs go on in spite of it.
        """
        for _ in range(WORKERS):
            self.start_worker()
        for fault in faults:
            seen = len(self._lines("before"))
            self._submit(RUNS_BEFORE).result(WAIT_SECONDS)
            self._wait(lambda seen=seen: len(self._lines("before")) > seen + RUNS_BEFORE)
            self.tell(getattr(fault, "__name__", "fault"))
            with fault(self):
                submitted = self._submit(RUNS_DURING)
                self._hold(seconds(), self._progress() if until_progress else None)
            self.tell("healed")
            self._wait(submitted.done)
            submitted.result()
        self._wait(lambda: len(self._finished()) == len(self._numbers))
        self._wait(self._are_done)

    def start_worker(self) -> Program:
        settings = {f"OUTLAST_{name.upper()}": str(value) for name, value in SETTINGS.items()}
        env = clean_environment(**settings, OUTLAST_STORE=self.address)
        # The command line reads no setting of the test's, and warnings are errors as everywhere.
        worker = Program(
            [sys.executable, "-W", "error", "-m", "outlast", "worker", FLOWS, "--log", "text"],
            self.folder,
            env=env,
        )
        self.workers.append(worker)
        return worker

    def supervise(self) -> None:
        """Replace each worker that has ended."""
        for worker in [worker for worker in self.workers if worker.has_ended]:
            self.exits.append(worker.wait())
            self.tell(f"worker {worker.pid} ended with {self.exits[-1]}: {worker.errors[-600:]}")
            assert self.workers_may_end, self.describe()
            self.workers.remove(worker)
            self.start_worker()

    def _submit(self, count: int) -> Future[None]:
        """Submit runs until each one is acknowledged."""
        first = len(self._numbers)
        new = {f"run-{number}": number for number in range(first, first + count)}
        self._numbers |= new
        return self._client.submit(new)

    def _hold(self, seconds: float, enough: int | None) -> None:
        """Let the fault last for a time, or until `enough` steps have begun."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (enough is None or len(self._lines("before")) < enough):
            self.supervise()
            time.sleep(LOOK_SECONDS)

    def _progress(self) -> int:
        """Return how many steps have begun when the runs have gone on: each may be about to begin one."""
        return len(self._lines("before")) + 2 * (len(self._numbers) - len(self._finished()))

    def _wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, and replace workers that end meanwhile."""

        def holds() -> object:
            self.supervise()
            if found := condition():
                return found
            time.sleep(LOOK_SECONDS)
            return False

        wait_until(holds, self.describe)

    # -- looking

    def _lines(self, when: str) -> list[LogLine]:
        return [line for line in self.ledger.update() if line.when == when]

    def _finished(self) -> set[str]:
        """Return the runs whose last step has ended at least once."""
        return {line.run for line in self._lines("after") if line.key.endswith(f"#{STEPS}")}

    def _are_done(self) -> bool:
        with suppress(StoreError):
            return {run["status"] for run in read_snapshot(self.direct).runs.values()} == {"done"}
        return False

    def _are_registered(self) -> bool:
        """Return whether every worker is in the store: a new one has no signal handlers before."""
        pids = {row["pid"] for row in read_snapshot(self.direct).workers.values()}
        return {worker.pid for worker in self.workers} <= pids

    def describe(self) -> str:
        outputs = [worker.describe() for worker in self.workers]
        return "\n".join([*self.story, *self._unfinished(), *outputs])

    def _unfinished(self) -> list[str]:
        """Return what the store says of each run that is not done."""
        try:
            rows = read_snapshot(self.direct).runs
        except Exception as error:  # the fault may still last
            return [f"the store cannot be read: {error!r}"]
        missing = [f"{id} is not in the store" for id in self._numbers if id not in rows]
        return missing + [str(row) for row in rows.values() if row["status"] != "done"]

    # -- judging

    def judge(self) -> None:
        """Check every promise, then end the workers in good order."""
        snapshot = read_snapshot(self.direct)
        expected = {
            id: (str(result_of(number, STEPS)), "done") for id, number in self._numbers.items()
        }
        found = {id: (run["value"], run["status"]) for id, run in snapshot.runs.items()}
        assert found == expected, self.describe()
        recorded = Counter(id for id, _ in snapshot.recorded())
        assert recorded == dict.fromkeys(self._numbers, STEPS), self.describe()
        problems = [
            *repeated_steps(snapshot, self._lines("before")),
            *lost_results(self._lines("before")),
        ]
        assert not problems, "\n".join([*problems, self.describe()])
        self._wait(self._are_registered)
        for worker in self.workers:
            worker.terminate()
        codes = [worker.wait() for worker in self.workers]
        assert codes == [0] * len(codes), self.describe()

    def close(self) -> None:
        for worker in self.workers:
            worker.resume()
            worker.kill()
        self._client.close()


@contextmanager
def closed(scenario: Scenario) -> Iterator[Scenario]:
    try:
        yield scenario
    finally:
        scenario.close()


def repeated_steps(snapshot: Snapshot, lines: list[LogLine]) -> list[str]:
    """Return the steps that were executed after their results were recorded, or twice in one life."""
    fences = snapshot.fences()
    repeated = [
        f"{line} was executed again, although its result was recorded under fence {fences[line.run, line.key]}"
        for line in lines
        if line.fence > fences[line.run, line.key]
    ]
    twice = Counter((line.run, line.key, line.attempt, line.fence) for line in lines)
    return repeated + [
        f"{life} was executed {count} times" for life, count in twice.items() if count > 1
    ]


def lost_results(lines: list[LogLine]) -> list[str]:
    """Return the steps that a later life executed after the workflow had gone on with their results.

    This asks the ledger alone: a store that lost a result could not tell.
    """
    gone_on: dict[str, tuple[int, int]] = {}
    problems = []
    for line in lines:
        number = int(line.key.rpartition("#")[2])
        furthest, fence = gone_on.get(line.run, (0, 0))
        if number < furthest and line.fence >= fence:
            problems.append(
                f"{line} was executed after step {furthest} had begun under fence {fence}"
            )
        elif number > furthest:
            gone_on[line.run] = number, line.fence
    return problems


class Client:
    """Submits runs from this process, through the same address as the workers use."""

    def __init__(self, address: str, clock: Path) -> None:
        self._address, self._clock = address, clock
        self._app: Outlast | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._open()).result(WAIT_SECONDS)

    @property
    def _is_stepped(self) -> bool:
        return self._clock.exists() and not has_own_clock(self._address)

    def _call(self, what: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    async def _open(self) -> None:
        store = stepped(self._address, self._clock) if self._is_stepped else self._address
        self._app = await Outlast(store, signals=0, **SETTINGS).__aenter__()
        # With a limit, every claim and submission locks the queue's row.
        await self._app.queue("default").limit(depth=100_000, concurrency=1_000)

    def submit(self, numbers: dict[str, int]) -> Future[None]:
        return self._call(self._submit_all(numbers))

    async def _submit_all(self, numbers: dict[str, int]) -> None:
        for id, number in numbers.items():
            while not await self._is_acknowledged(id, number):
                await asyncio.sleep(0.05)

    async def _is_acknowledged(self, id: str, number: int) -> bool:
        try:
            if self._app is None:
                await self._open()
            assert self._app is not None
            # A sleep that begins while the clock of the store is an hour ahead lasts an hour.
            sleeps = number % 3 == 0 and not self._is_stepped
            await self._app.submit(double(number, STEPS, sleeps=sleeps), id=id)
        except StoreUnavailable:
            return False
        except StoreError:  # its file was removed: open what is there now
            await self._close()
            return False
        return True

    async def _close(self) -> None:
        app, self._app = self._app, None
        if app is not None:
            await app.__aexit__(None, None, None)

    def close(self) -> None:
        self._call(self._close()).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()
