"""`outlast bench` as a process, beside the work of others in the store."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from outlast.measuring.names import QUEUE
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.store.verbs import Claim, Enlist, Leave, Record, Release, Settle, Submit
from support.waiting import WAIT_SECONDS


def environ(**more: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    return {**outer, **more}


def outlast(*words: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "outlast", *map(str, words)]


def command(address: str, *words: object) -> list[str]:
    return outlast("bench", "--store", address, *words)


def bench(address: str, *words: object, **env: str) -> tuple[int, str, str]:
    """To its end: exit code, and what it said on stdout and on stderr."""
    done = subprocess.run(
        command(address, *words),
        env=environ(**env),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def started(address: str, *words: object, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Under way. It is gone after."""
    process = subprocess.Popen(
        command(address, *words),
        env=environ(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        except BaseException as error:
            process.kill()
            error.add_note(f"the bench said {process.communicate()}")
            raise
        finally:
            process.kill()


@contextmanager
def opened(address: str) -> Iterator[Store]:
    store = store_at(address)
    store.open()
    with closing(store):
        yield store


def made(address: str) -> str:
    """The address, of a store that is there."""
    with opened(address):
        return address


def runs_of_benches(store: Store) -> list[RunRow]:
    return store.runs(RunQuery(queue=QUEUE, items=False, limit=10_000))


def others_work(store: Store) -> None:
    """Runs of others in each way that a run can stand, one of them a plain item in the bench's own queue."""
    store.hold("w")
    store.commit([Enlist("w", "host", os.getpid(), 60.0)])
    for id in ("queued", "done", "failed", "returned", "parked"):
        store.commit([Submit(id, "flow", "{}", f"t-{id}", "seed")])
    store.commit([Submit("item", "", "{}", "t-item", "seed", queue=QUEUE)])
    rows = store.commit([Claim("w", "token", ("done", "failed", "returned", "parked"), limit=9)])[0]
    by_id = {row.id: row for row in rows}
    store.commit([Record(row.pk, 1, row.fence, "step", "s#1", store.now(), value="1") for row in rows])
    for status in ("done", "failed", "parked"):
        store.commit([Settle(by_id[status].pk, by_id[status].fence, status)])
    store.commit([Release(by_id["returned"].pk, by_id["returned"].fence, "its worker drains")])
    store.commit([Leave("w")])
    store.let_go("w")


def others_seen(store: Store) -> dict[str, Any]:
    """All that there is of others: the runs as they are, and their journals."""
    rows = [row for row in store.runs(RunQuery(limit=10_000)) if not row.id.startswith(QUEUE)]
    return {row.id: (row, store.journal(row.pk)) for row in rows}


def nothing_is_left(store: Store) -> None:
    """Of a bench, but the name of its queue."""
    assert runs_of_benches(store) == []
    assert store.workers() == []
    assert store.drains() == []
    assert store.measured() == []


def members_of(pid: int) -> list[int]:
    """Workers that this bench has started. Only looked at."""
    words = f"outlast.chaos.member\0{pid}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if words in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
