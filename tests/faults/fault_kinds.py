"""The faults. Each one is injected on entry to its context and healed on exit."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fault_flows import CLOCK, STEP
from fault_scenario import CALL_SECONDS, Fault, Scenario

from support.postgres_schemas import connected
from support.seeds import seed
from support.waiting import wait_until

KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "0"))
HOUR_SECONDS = 3600.0
POSTGRES_STOPS = (signal.SIGQUIT, signal.SIGINT, *([signal.SIGTERM] if KILLS else []))
"""At SIGTERM a server waits for its clients, here until it is killed. Only the long form has time for that."""
STARTS = 4
"""Workers that get a signal while they start."""

# -- the network


@contextmanager
def half_open(scenario: Scenario) -> Iterator[None]:
    """No connection answers. The new ones do when it is over, the old ones never again."""
    scenario.proxy.go_silent()
    yield
    scenario.proxy.answer_new_links()
    # Those made meanwhile were accepted and held back, too: their clients have given up, or will.


@contextmanager
def silent(scenario: Scenario) -> Iterator[None]:
    """No connection answers. When it is over everything that was held back arrives."""
    scenario.proxy.go_silent()
    yield
    scenario.proxy.speak_again()


@contextmanager
def late_replies(scenario: Scenario) -> Iterator[None]:
    """Replies arrive just before or long after their clients have given up."""
    late = scenario.chance.choice((0.3, 0.8, 1.5)) * CALL_SECONDS
    scenario.tell(f"replies are {late:.1f} s late")
    scenario.proxy.delay(replies=late)
    yield
    scenario.proxy.delay()


@contextmanager
def late_requests(scenario: Scenario) -> Iterator[None]:
    """Requests reach the server after their clients have given up and tried again elsewhere."""
    late = scenario.chance.choice((0.5, 1.2, 2.2)) * CALL_SECONDS
    scenario.tell(f"requests are {late:.1f} s late")
    scenario.proxy.delay(requests=late)
    yield
    scenario.proxy.delay()


@contextmanager
def reset_in_commit(scenario: Scenario) -> Iterator[None]:
    """The server commits steps, and a RST arrives in place of its replies."""
    before, count = scenario.proxy.cuts, scenario.chance.randint(3, 6)
    scenario.proxy.cut_replies(STEP.encode(), count)
    yield
    wait_until(lambda: scenario.proxy.cuts > before, scenario.describe)
    scenario.proxy.cut_replies(b"", 0)
    scenario.tell(f"{scenario.proxy.cuts - before} replies were cut")


@contextmanager
def refused(scenario: Scenario) -> Iterator[None]:
    scenario.proxy.refuse()
    yield
    scenario.proxy.accept_again()


# -- the server


@contextmanager
def frozen_server(scenario: Scenario) -> Iterator[None]:
    pids = [scenario.server.pid, *_children(scenario.server.pid)]
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


@contextmanager
def restarted_server(scenario: Scenario) -> Iterator[None]:
    how = scenario.chance.choice(POSTGRES_STOPS)
    if scenario.address.startswith("redis"):
        how = scenario.chance.choice((signal.SIGKILL, signal.SIGTERM))
    scenario.tell(f"the server gets {how.name}")
    scenario.server.stop(how)
    try:
        yield
    finally:
        scenario.server.start()


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


# -- locks of another program


def locked(*statements: str) -> Fault:
    """Hold the locks of one of these statements."""

    @contextmanager
    def fault(scenario: Scenario) -> Iterator[None]:
        statement = scenario.chance.choice(statements)
        scenario.tell(statement)
        with connected(scenario.direct) as db, db.transaction():
            db.execute("SET LOCAL lock_timeout = '100s'")
            db.execute(statement)
            yield

    return fault


@contextmanager
def locked_table(scenario: Scenario) -> Iterator[None]:
    """Hold a lock that excludes everybody from one of the store's tables."""
    with connected(scenario.direct) as db:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = sorted(name for (name,) in db.execute(query))
    with locked(*(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE" for table in tables))(scenario):
        yield


@contextmanager
def locked_file(scenario: Scenario) -> Iterator[None]:
    db = sqlite3.connect(_file(scenario), timeout=100, isolation_level=None)
    try:
        db.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        db.close()


# -- files and disks


def _file(scenario: Scenario) -> Path:
    return Path(scenario.direct.removeprefix("sqlite:///"))


def _beside(scenario: Scenario, suffix: str) -> Path:
    return Path(f"{_file(scenario)}{suffix}")


@contextmanager
def removed_file(scenario: Scenario) -> Iterator[None]:
    """Another program removes a file that SQLite keeps beside the database."""
    scenario.workers_may_end = True
    suffixes = scenario.chance.choice((("-wal",), ("-shm",), ("-wal", "-shm")))
    scenario.tell(f"{' and '.join(suffixes)} removed")
    for suffix in suffixes:
        _beside(scenario, suffix).unlink()
    yield


@contextmanager
def replaced_file(scenario: Scenario) -> Iterator[None]:
    """Another program restores a copy of such a file over the one in use.

    Nothing is committed between copying and restoring. An older copy of the log would lack acknowledged commits,
    and restoring it takes them back, whatever a store does.
    """
    scenario.workers_may_end = True
    suffix = scenario.chance.choice(("-wal", "-shm"))
    scenario.tell(f"{suffix} replaced")
    # Another process makes the copy: closing the file here would drop the locks of the client.
    copy = scenario.folder / "copy"
    with locked_file(scenario):
        subprocess.run(["cp", _beside(scenario, suffix), copy], check=True)
        copy.replace(_beside(scenario, suffix))
    yield


@contextmanager
def full_disk(scenario: Scenario) -> Iterator[None]:
    """No file of the workers may grow beyond the size of SQLite's log, so the log itself may not.

    A limit stands for the full disk: it needs no rights, and can be lifted from outside.
    """
    log, others = _beside(scenario, "-wal"), 40_000
    wait_until(lambda: log.stat().st_size > others, scenario.describe)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    pids = [worker.pid for worker in scenario.workers]
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    yield
    for pid in pids:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


# -- clocks


@contextmanager
def stepped_clock(scenario: Scenario) -> Iterator[None]:
    """The clock of the workers' host jumps by an hour, and back. A server keeps its time."""
    hours = scenario.chance.choice((-1, 1))
    scenario.tell(f"the clock jumps by {hours} h")
    step_clock(scenario.folder, hours * HOUR_SECONDS)
    yield
    step_clock(scenario.folder, 0.0)


def step_clock(folder: Path, seconds: float) -> None:
    """Set how far the clock of every process in this folder is ahead."""
    new = folder / "clock.new"
    new.write_text(str(seconds))
    new.replace(folder / CLOCK)


# -- processes


@contextmanager
def signals_at_start(scenario: Scenario) -> Iterator[None]:
    """More workers start, and each gets SIGTERM or SIGKILL before it has started, or soon after."""
    for _ in range(STARTS):
        number = scenario.chance.choice((signal.SIGTERM, signal.SIGKILL))
        worker = scenario.start_worker()
        scenario.workers.remove(worker)
        time.sleep(scenario.chance.uniform(0.0, 0.4))
        worker.send_signal(number)
        code = worker.wait()
        scenario.tell(f"a worker that got {number.name} ended with {code}")
        assert code in (-number, 0), worker.describe()
    yield


@contextmanager
def killed_worker(scenario: Scenario) -> Iterator[None]:
    scenario.workers_may_end = True
    scenario.chance.choice(scenario.workers).kill()
    yield


@contextmanager
def paused_worker(scenario: Scenario) -> Iterator[None]:
    worker = scenario.chance.choice(scenario.workers)
    worker.pause()
    yield
    worker.resume()


SILENT, LATE, CUT = (half_open, silent), (late_replies, late_requests), (reset_in_commit, refused)
STOPPED = (frozen_server, restarted_server)
NETWORK: dict[str, tuple[Fault, ...]] = {
    "silent connections": SILENT,
    "late messages": LATE,
    "cut connections": CUT,
    "stopped server": STOPPED,
}
CLOCK_STEP = "stepped clock"
STARTING = "signals at start-up"
KINDS: dict[str, dict[str, tuple[Fault, ...]]] = {
    "sqlite": {
        "locked file": (locked_file,),
        "removed files": (removed_file,),
        "replaced files": (replaced_file,),
        "full disk": (full_disk,),
        CLOCK_STEP: (stepped_clock,),
        STARTING: (signals_at_start,),
    },
    "postgres": {
        **NETWORK,
        "locked rows": (
            locked("SELECT 1 FROM queues FOR UPDATE"),
            locked("SELECT 1 FROM workers FOR UPDATE"),
            locked("SELECT 1 FROM runs ORDER BY pk DESC LIMIT 2 FOR UPDATE"),
        ),
        "locked table": (locked_table,),
        CLOCK_STEP: (stepped_clock,),
        STARTING: (signals_at_start,),
    },
    "redis": {**NETWORK, CLOCK_STEP: (stepped_clock,), STARTING: (signals_at_start,)},
}
"""The faults of each store, by kind."""
DEATHS: tuple[Fault, ...] = (killed_worker, paused_worker)
"""Faults that other folders test. A mixture has them, too."""


def mixture(store: str) -> list[Fault]:
    """Return every fault of a store."""
    return [*DEATHS, *(fault for faults in KINDS[store].values() for fault in faults)]


def one_of_each_kind(store: str, chance: random.Random) -> list[Fault]:
    """Return one fault of each kind, in a random order.

    Of the two faults of each kind of `NETWORK`, Redis has the one that Postgres does not have in the same
    run of the tests. Only SQLite has signals at start-up: what they meet hardly depends on the store.
    """
    pairs = random.Random(f"{seed()} pairs")
    of_postgres = {kind: pairs.randrange(2) for kind in NETWORK}
    faults = [
        faults[of_postgres[kind] ^ (store == "redis")] if kind in NETWORK else chance.choice(faults)
        for kind, faults in KINDS[store].items()
        if kind != STARTING or store == "sqlite"
    ]
    return chance.sample(faults, len(faults))
