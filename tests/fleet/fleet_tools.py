"""Fleets of real worker processes, and their store as seen from outside."""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
sys.path[:0] = [str(HERE.parent / "process"), str(PROGRAMS)]

from process_tools import Image, Line, Log, Program, look, until

from outlast import Outlast
from places import peek

SETTINGS: dict[str, Any] = {
    "lease": 10,
    "heartbeat": 0.1,
    "ramp": 0,
    "death_backoff": 0.05,
    "suspect_patience": 0.5,
    "linger": 0.2,
    "returned_rate": 10_000,
    "max_attempts": 3,
}
"""Short times. The lease is longer than a busy machine's pauses: where it is to run out, the test says so."""


class Fleet:
    """Worker processes on one store, in one folder, which is where they keep the outside log."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.log = folder, address, Log(folder)
        (folder / "store").write_text(address)  # where the programs look for it
        self.workers: list[Program] = []
        self.all: list[Program] = []

    # -- processes

    def start(self, *flows: str, module: str = "fleet_flows", **options: Any) -> Program:
        """Another worker. The options are settings, or words of programs/worker.py."""
        worker = self.spawn(
            "worker.py", json.dumps({**SETTINGS, "module": module, "flows": flows, **options})
        )
        self.workers.append(worker)
        return worker

    def start_many(self, count: int, *flows: str, **options: Any) -> list[Program]:
        """So many, up."""
        workers = [self.start(*flows, **options) for _ in range(count)]
        for worker in workers:
            self.is_up(worker)
        return workers

    def spawn(self, name: str, *args: object) -> Program:
        program = Program(str(PROGRAMS / name), self.folder, *args)
        self.all.append(program)
        return program

    def is_up(self, worker: Program) -> Program:
        until(lambda: worker.said() or self._ended(worker))
        return worker

    @staticmethod
    def _ended(worker: Program) -> None:
        assert not worker.ended, worker.errors()

    def replace_the_dead(self, *flows: str, **options: Any) -> int:
        """Start another worker for each that is gone. How many were."""
        dead = [worker for worker in self.workers if worker.ended]
        for worker in dead:
            self.workers.remove(worker)
            self.start(*flows, **options)
        return len(dead)

    def close(self) -> None:
        for program in self.all:
            program.kill()

    # -- this process, which is no worker

    def do(self, action: Callable[[Outlast], Awaitable[Any]], **settings: Any) -> Any:
        """With Outlast open here, for as long as this takes."""

        async def main() -> Any:
            async with Outlast(self.address, **{**SETTINGS, **settings}) as app:
                return await action(app)

        return asyncio.run(main())

    def submit(self, calls: list[Any], ids: list[str], **options: Any) -> None:
        self.do(lambda app: app.submit_many(calls, ids=ids, **options))

    # -- what there is to see

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """The store itself, so that nobody is woken and no sign of life is given."""
        connection = peek(self.address)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def statuses(self) -> Counter[str]:
        return Counter(dict(self.ask("SELECT status, count(*) FROM runs GROUP BY status")))

    def status(self, id: str) -> str:
        ((status,),) = self.ask("SELECT status FROM runs WHERE id = ?", id)
        return status

    def all_are(self, *statuses: str) -> bool:
        return set(self.statuses()) <= set(statuses)

    def until_all_are(self, *statuses: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.all_are(*statuses):
            assert time.monotonic() < deadline, f"still {self.statuses()}: {self.tell()}"
            time.sleep(0.02)

    def image(self) -> Image:
        return look(self.address)

    def make(self, name: str) -> None:
        """A file in the folder, for which a program may wait."""
        (self.folder / name).touch()

    def lines(self, when: str = "before", pid: int | None = None) -> list[Line]:
        return [line for line in self.log.update() if line.when == when and pid in (None, line.pid)]

    def hooks(self, what: str) -> list[str]:
        """Ids with which a hook was called, in any worker."""
        said = [word for worker in self.all for word in worker.said()]
        return sorted(word["id"] for word in said if word.get("hook") == what)

    def tell(self) -> str:
        """For the message of a failed assertion."""
        rows = self.ask(
            "SELECT id, status, worker, deaths, interruptions, ready, due, reason FROM runs"
            " WHERE status <> 'done' LIMIT 8"
        )
        errors = [f"--- {worker.pid}\n{worker.errors()[-1500:]}" for worker in self.all[-4:]]
        return "\n".join([*map(str, rows), *errors])


def assert_nothing_was_recorded_under_a_stale_fence(image: Image) -> None:
    """Once a run was taken from a life, that life has recorded nothing more."""
    for id, journal in image.journals.items():
        void = 0
        for entry in journal:
            if entry["kind"] in ("death", "interruption", "retry", "resume", "undoing", "decision"):
                void = max(void, abs(entry["fence"]))
            else:
                assert entry["fence"] > void, f"{id}: {entry} was recorded by a life that had lost the run"


def assert_nothing_recorded_was_redone(image: Image, lines: list[Line]) -> None:
    """No life that came after the one that recorded a step has executed it; and no life is overtaken by an older one."""
    assert_nothing_was_recorded_under_a_stale_fence(image)
    fences = image.fences()
    newest: dict[str, int] = {}
    for line in lines:
        if line.when == "before":
            recorded = fences.get((line.run, line.key), line.fence)
            assert line.fence <= recorded, f"{line} was recorded, and executed again"
            assert line.fence >= newest.get(line.run, 0), f"{line} was executed under an old fence"
            newest[line.run] = line.fence
    starts = Counter(line[1:] for line in lines if line.when == "before")
    assert max(starts.values(), default=0) <= 1, "one life executes a step once"


def at_once(lines: list[Line]) -> int:
    """How many bodies were under way at the same time, at the most."""
    most = now = 0
    for line in lines:
        now += {"before": 1, "after": -1}.get(line.when, 0)
        most = max(most, now)
    return most


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
