"""Guards inside a run use the run's id and fence, and refuse an earlier claim of the run."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
import redis
from test_fencing_http import notes  # noqa: F401 - the server

import outlast.sync
from outlast import StaleFence, current, fencing, step, workflow
from outlast.testing import App
from support.processes import Program
from support.waiting import WAIT_SECONDS

WRITER = Path(__file__).parent / "writer.py"


def test_guard_in_a_step_uses_the_run_and_its_fence(sqlite):
    @step
    async def write() -> int:
        with closing(sqlite3.connect(sqlite)) as db, db:
            fencing.guard_sql(db)
        assert fencing.fence_headers() == {
            "Outlast-Run": "run-1",
            "Outlast-Fence": str(current().fence),
        }
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
        assert db.execute("SELECT resource, fence FROM outlast_fences").fetchall() == [
            ("run-1", first)
        ]


def test_first_claim_is_refused_after_the_second_has_written(sqlite):
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


def test_sync_run_guards_a_transaction(sqlite):
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


def test_importing_fencing_imports_no_drivers():
    code = "import sys, outlast.fencing; print(*set(sys.modules) & {'psycopg', 'pydantic', 'redis', 'sqlite3', 'http'})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert done.stdout.split() == []


def said_by(program, folder, count):
    """Wait until a writer has printed this many lines. Return (fence, what) of each."""

    def lines():
        path = folder / "lines"
        found = (
            [line.split(maxsplit=2) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )
        return [(int(fence), what) for pid, fence, what in found if int(pid) == program.pid]

    program.wait_until(lambda: len(lines()) >= count)
    return lines()


def test_process_stopped_past_its_lease_is_refused_by_every_system(
    tmp_path, sqlite, postgres, redis_server, prefix, notes  # noqa: F811
):  # fmt: skip
    """Its step continues in a thread that nothing can stop, and tries to write to all four systems."""
    url, written = notes
    arguments = [WRITER, tmp_path, sqlite, postgres, redis_server.url, url, prefix]
    with ExitStack() as stack:
        old = stack.enter_context(Program.python(*arguments, folder=tmp_path))
        ((old_fence, _),) = said_by(old, tmp_path, 1)
        old.pause()
        young = stack.enter_context(Program.python(*arguments, folder=tmp_path))
        said_by(young, tmp_path, 1)
        (tmp_path / f"go-{young.pid}").touch()
        (young_fence, _), *outcomes = said_by(young, tmp_path, 5)
        assert young_fence > old_fence
        assert [what for _, what in outcomes] == [
            "sqlite wrote",
            "postgres wrote",
            "redis wrote",
            "http 204",
        ]
        assert young.wait() == 0, young.describe()  # else the old process could take the run back
        (tmp_path / f"go-{old.pid}").touch()
        old.resume()
        _, *outcomes = said_by(old, tmp_path, 5)
        assert [what for _, what in outcomes] == [
            "sqlite refused",
            "postgres refused",
            "redis refused",
            "http 409",
        ]
        assert old.wait() == 0, old.describe()
    mine = [str(young.pid)]
    with closing(sqlite3.connect(sqlite)) as db, psycopg.connect(postgres) as pg:
        for each in (db, pg):
            assert [note for (note,) in each.execute("SELECT note FROM notes").fetchall()] == mine
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        assert client.lrange(f"{{{prefix}}}:notes", 0, -1) == mine
    assert [body for _, body in written] == mine
