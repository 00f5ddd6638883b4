"""Inside a run the guards know the run's id and its fence, and an earlier life of it is refused."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis
from test_fencing_http import notes  # noqa: F401 - the server

import outlast.sync
from outlast import StaleFence, current, fencing, step, workflow
from outlast.testing import App

WRITER = Path(__file__).parent / "writer.py"


def test_a_guard_in_a_step_goes_by_the_run(sqlite):
    @step
    async def write() -> int:
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db)
        assert fencing.fence_headers() == {"Outlast-Run": "run-1", "Outlast-Fence": str(current().fence)}
        assert fencing.fence_headers("other")["Outlast-Run"] == "other"
        return current().fence

    @step
    def write_in_a_thread() -> int:
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db)
        return current().fence

    @workflow
    async def flow() -> list[int]:
        return [await write(), await write_in_a_thread.aio()]

    first, second = App().run(flow(), id="run-1")
    assert first == second > 0
    with closing(sqlite3.connect(sqlite)) as db:
        assert db.execute("SELECT resource, fence FROM outlast_fences").fetchall() == [("run-1", first)]


def test_the_first_life_of_a_run_is_refused_after_its_second_has_written(sqlite):
    fences = []

    @step
    async def write() -> None:
        fences.append(current().fence)
        if len(fences) == 1:
            await asyncio.sleep(100)  # the process ends here
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db)

    @workflow
    async def flow() -> None:
        await write()

    async def begin(app):
        await app.start(flow(), id="run-1")
        await asyncio.sleep(10)

    app = App()
    app.do(begin)
    app.run(flow(), id="run-1")
    first, second = fences
    assert first < second
    with closing(sqlite3.connect(sqlite)) as db:
        with pytest.raises(StaleFence) as refused:
            fencing.guard_sql(db, "run-1", fence=first)
        assert refused.value.newest == second


def test_runs_that_share_a_resource_are_ordered_by_their_claims(sqlite):
    """The older run, whose claim is older, is refused once the younger one has written: its step fails with StaleFence."""
    go_on = asyncio.Event()

    @step
    async def write(wait: bool) -> int:
        if wait:
            await go_on.wait()
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db, "account-1")
        return current().fence

    @workflow
    async def flow(wait: bool) -> int:
        return await write(wait)

    async def main(app):
        old = await app.start(flow(True), id="old")
        await asyncio.sleep(1)
        young = await app.start(flow(False), id="young")
        fence = await young.result()
        go_on.set()
        with pytest.raises(StaleFence) as refused:
            await old.result()
        assert (refused.value.resource, refused.value.newest) == ("account-1", fence)
        assert refused.value.fence < fence
        assert "do not try again" in str(refused.value), "it comes back from the journal whole"

    App().do(main)


def test_a_sync_run_guards_as_well(sqlite):
    @step
    def write() -> int:
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db)
        return current().fence

    @workflow
    def flow() -> int:
        return write()

    fence = outlast.sync.run(flow(), id="run-1", store="memory:")
    with closing(sqlite3.connect(sqlite)) as db:
        assert db.execute("SELECT * FROM outlast_fences").fetchall() == [("run-1", fence)]


def test_importing_it_is_light():
    code = "import sys, outlast.fencing; print(*set(sys.modules) & {'psycopg', 'pydantic', 'redis', 'sqlite3', 'http'})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


class Lines:
    """What the writers say, in one file: (pid, fence, what)."""

    def __init__(self, path):
        self.path = path

    def of(self, pid):
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split(maxsplit=2) for line in text.splitlines()]
        return [(int(fence), what) for who, fence, what in lines if int(who) == pid]

    def wait(self, process, count):
        deadline = time.monotonic() + 40
        while len(self.of(process.pid)) < count:
            assert process.poll() in (None, 0), "the writer died"
            assert time.monotonic() < deadline, self.of(process.pid)
            time.sleep(0.01)
        return self.of(process.pid)


def test_a_process_stopped_past_its_lease_is_refused_everywhere_when_it_wakes(
    tmp_path, sqlite, postgres, redis_server, prefix, notes  # noqa: F811
):  # fmt: skip
    """Its step goes on in a thread that nothing can stop, and really tries to write: to all four systems."""
    url, written = notes
    lines = Lines(tmp_path / "lines")
    command = [
        sys.executable,
        "-W",
        "error",
        WRITER,
        tmp_path,
        sqlite,
        postgres,
        redis_server.url,
        url,
        prefix,
    ]
    old = subprocess.Popen(command)
    young = None
    try:
        ((old_fence, _),) = lines.wait(old, 1)
        old.send_signal(signal.SIGSTOP)
        young = subprocess.Popen(command)
        lines.wait(young, 1)
        (tmp_path / f"go-{young.pid}").touch()
        (young_fence, _), *outcomes = lines.wait(young, 5)
        assert young_fence > old_fence
        assert [what for _, what in outcomes] == ["sqlite wrote", "postgres wrote", "redis wrote", "http 204"]
        (tmp_path / f"go-{old.pid}").touch()
        old.send_signal(signal.SIGCONT)
        _, *outcomes = lines.wait(old, 5)
        assert [what for _, what in outcomes] == [
            "sqlite refused",
            "postgres refused",
            "redis refused",
            "http 409",
        ]
        assert (old.wait(30), young.wait(30)) == (0, 0)
    finally:
        for process in (old, young):
            if process is not None:
                process.kill()
                process.wait()
    mine = [str(young.pid)]
    with closing(sqlite3.connect(sqlite)) as db, psycopg.connect(postgres) as pg:
        for each in (db, pg):
            assert [note for (note,) in each.execute("SELECT note FROM notes").fetchall()] == mine
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        assert client.lrange(f"{{{prefix}}}:notes", 0, -1) == mine
    assert [body for _, body in written] == mine
