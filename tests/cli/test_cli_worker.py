"""`outlast worker` as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from contextlib import closing

import pytest
from cli_processes import Worker, wait_for_file

from outlast import Outlast
from outlast.cli import exit_codes
from outlast.store.address import store_at
from support.waiting import wait_until

PROGRAM = """
import asyncio, os
from pathlib import Path

from outlast import step, workflow


@step
async def note(word: str) -> str:
    with Path("notes").open("a") as file:
        file.write(f"{os.getpid()} {word}\\n")
    return word


@step
async def gate() -> None:
    Path("at-the-gate").touch()
    while not Path("open").exists():
        await asyncio.sleep(0.01)


@workflow
async def report(topic: str) -> str:
    return await note(topic)


@workflow
async def gated(topic: str) -> str:
    await note("first")
    await gate()
    return await note(topic)
"""

STUBBORN = """
import asyncio
from pathlib import Path

from outlast import step, workflow


@step
async def refuse() -> None:
    Path("stays").touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@workflow
async def stay() -> None:
    await refuse()
"""

WITH_APP = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from agent import report
from outlast import Outlast


async def handle(item):
    Path("consumed").write_text(item.payload)


@asynccontextmanager
async def lifespan(app):
    Path("lifespan").write_text("begun")
    task = asyncio.create_task(app.queue("mail").consume(handle))
    yield
    task.cancel()
    Path("lifespan").write_text("ended")


app = Outlast(lifespan=lifespan, concurrency=3, queues=["mine"])
other = Outlast(concurrency=4)
"""


@pytest.fixture
def folder(outlast):
    (outlast.folder / "agent.py").write_text(PROGRAM)
    return outlast.folder


def row(folder, id, name="outlast.db"):
    store = store_at(f"sqlite:///{folder / name}")
    store.open()
    try:
        return store.run(id)
    finally:
        store.close()


def ended(folder, id, name="outlast.db"):
    """Wait until a run has ended, and return it."""
    store = store_at(f"sqlite:///{folder / name}")
    store.open()
    with closing(store):
        return wait_until(lambda: (found := store.run(id)) and found.ended and found)


def notes(folder):
    return [line.split() for line in (folder / "notes").read_text().splitlines()]


# -- at work


def test_worker_executes_submitted_runs_and_exits_0_on_sigterm(folder, outlast):
    assert outlast("submit", "agent.py:report", "early", "--id", "r1").out == "r1\n"
    with Worker(folder) as worker:
        assert ended(folder, "r1").status == "done"
        outlast("submit", "agent.py:report", "late", "--id", "r2")
        assert ended(folder, "r2").value == '"late"'
        assert [pid for pid, _ in notes(folder)] == [str(worker.pid)] * 2
        [seen] = outlast("workers", "--json").json["workers"]
        assert (seen["pid"], seen["state"], seen["queues"]) == (worker.pid, "alive", ["default"])
        assert set(seen["workflows"]) == {"gated", "report"}
        assert (worker.end_by(signal.SIGTERM), worker.output) == (exit_codes.OK, "")
    assert outlast("workers", "--json").json["workers"] == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, exit_codes.OK), (signal.SIGINT, exit_codes.INTERRUPTED)]
)
def test_signalled_worker_releases_runs_to_another(folder, outlast, number, code):
    outlast("submit", "agent.py:gated", "last", "--id", "r1")
    with Worker(folder) as first:
        wait_for_file(folder / "at-the-gate")
        assert first.end_by(number) == code
    given_back = row(folder, "r1")
    assert (given_back.status, given_back.worker, given_back.interruptions) == ("queued", None, 1)
    (folder / "open").touch()
    with Worker(folder) as second:
        assert ended(folder, "r1").value == '"last"'
        assert notes(folder) == [[str(first.pid), "first"], [str(second.pid), "last"]]


def test_runs_of_a_killed_worker_are_taken_over(folder, outlast):
    outlast("submit", "agent.py:gated", "last", "--id", "r1")
    with Worker(folder) as first:
        wait_for_file(folder / "at-the-gate")
        with Worker(folder) as second:
            first.kill()
            (folder / "open").touch()
            assert ended(folder, "r1").status == "done"
            assert notes(folder)[-1] == [str(second.pid), "last"]
            assert second.end_by(signal.SIGTERM) == 0
            assert "Found 1 dead worker" in second.errors
    assert " died; worker " in outlast("show", "r1").out


@pytest.mark.parametrize(
    ("store", "name"),
    [
        ("sqlite:///outlast.db", "outlast.db"),
        ("sqlite:///outlast.db", "outlast.db-wal"),
        pytest.param("sqlite:///outlast.db", "outlast.db-shm", marks=pytest.mark.extended),
        ("file:state", "state"),
    ],
)
def test_worker_ends_when_its_store_is_removed(folder, store, name):
    with Worker(folder, "agent.py", "--store", store) as worker:
        (folder / name).rename(folder / "elsewhere")
        assert worker.wait() == exit_codes.FAILED
        assert "removed or replaced while in use" in worker.error_lines[-2]
        assert "Traceback" not in worker.errors


def test_worker_without_a_store_ends_despite_a_stubborn_step(folder, outlast):
    (folder / "stubborn.py").write_text(STUBBORN)
    outlast("submit", "stubborn.py:stay", "--id", "r1")
    with Worker(folder, "stubborn.py", OUTLAST_CLOSE_TIMEOUT="0.1", OUTLAST_LEASE="5") as worker:
        wait_for_file(folder / "stays")
        (folder / "outlast.db").rename(folder / "elsewhere")
        assert worker.wait() == exit_codes.FAILED
        assert "removed or replaced while in use" in worker.error_lines[-2]
        assert "Traceback" not in worker.errors


def test_a_worker_takes_only_from_its_queues(folder, outlast):
    outlast("submit", "agent.py:report", "one", "--id", "r1", "--queue", "one")
    outlast("submit", "agent.py:report", "two", "--id", "r2", "--queue", "two")
    outlast("submit", "agent.py:report", "three", "--id", "r3")
    with Worker(
        folder, "agent.py", "--queue", "one", "--queue", "two", "--concurrency", "7"
    ) as worker:
        assert ended(folder, "r1").status == ended(folder, "r2").status == "done"
        [seen] = outlast("workers", "--json").json["workers"]
        assert (seen["queues"], seen["concurrency"]) == (["one", "two"], 7)
        worker.end_by(signal.SIGTERM)
    assert row(folder, "r3").status == "queued"


def test_a_worker_may_be_given_several_modules_and_another_store(folder, outlast):
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "more.py").write_text(
        "from outlast import workflow\n\n\n@workflow\nasync def more() -> str:\n    return 'more'\n\n\n"
        "class Group:\n    @workflow\n    async def inner() -> str:\n        return 'inner'\n"
    )
    address = ("--store", "sqlite:///other.db")
    outlast("submit", "pkg.more:more", "--id", "r1", *address)
    outlast("submit", "pkg.more:Group.inner", "--id", "r2", *address)
    outlast("submit", "agent.py:report", "x", "--id", "r3", *address)
    with Worker(folder, "pkg.more", "agent.py", *address):
        for id in ("r1", "r2", "r3"):
            assert ended(folder, id, "other.db").status == "done"
    assert not (folder / "outlast.db").exists()


def test_unknown_workflow_waits_and_is_reported(folder, outlast):
    (folder / "newer.py").write_text(
        "from outlast import workflow\n\n\n@workflow\nasync def newest() -> int:\n    return 1\n"
    )
    outlast("submit", "newer.py:newest", "--id", "r1")
    with Worker(folder) as old:
        warning = json.loads(old.wait_for_error_line(1))
        assert (warning["level"], warning["workflow"]) == ("warning", "newest")
        assert (
            "runs of newest are ready, and no live worker of this queue knows the workflow"
            in outlast("queues").out
        )
        with Worker(folder, "newer.py"):
            assert ended(folder, "r1").value == "1"


# -- an app in the module


@pytest.mark.parametrize(
    "target", ["shop.py", pytest.param("shop.py:app", marks=pytest.mark.extended), "shop:app"]
)
def test_an_app_brings_its_settings_and_its_lifespan(folder, outlast, target):
    (folder / "shop.py").write_text(WITH_APP)
    outlast("submit", "agent.py:report", "x", "--id", "r1", "--queue", "mine")
    with Worker(folder, target) as worker:
        assert ended(folder, "r1").status == "done"
        assert (folder / "lifespan").read_text() == "begun"
        [seen] = outlast("workers", "--json").json["workers"]
        assert seen["concurrency"] == 3
        assert "mine" in seen["queues"]
        assert seen["workflows"] == ["report"], "it was imported there"
        assert worker.end_by(signal.SIGTERM) == 0
    assert (folder / "lifespan").read_text() == "ended"


def test_the_command_line_wins_over_the_app(folder, outlast):
    (folder / "shop.py").write_text(WITH_APP)
    outlast("submit", "agent.py:report", "x", "--id", "r1", "--store", "sqlite:///other.db")
    words = ("shop.py", "--queue", "default", "--concurrency", "5", "--store", "sqlite:///other.db")
    with Worker(folder, *words) as worker:
        assert ended(folder, "r1", "other.db").status == "done"
        assert json.loads(worker.first)["concurrency"] == 5
    assert not (folder / "outlast.db").exists()


def test_another_app_can_be_named(folder):
    (folder / "shop.py").write_text(WITH_APP)
    with Worker(folder, "shop.py:other") as worker:
        assert json.loads(worker.first)["concurrency"] == 4
    assert not (folder / "lifespan").exists()


async def put(payload: str) -> None:
    async with Outlast() as app:
        await app.queue("mail").put(payload)


def test_an_app_without_workflows_consumes_items(folder):
    (folder / "shop.py").write_text(WITH_APP.replace("from agent import report\n", ""))
    with Worker(folder, "shop.py") as worker:
        asyncio.run(put("hello"))
        wait_until(lambda: (folder / "consumed").exists() and (folder / "consumed").read_text())
        assert (folder / "consumed").read_text() == "hello"
        assert worker.end_by(signal.SIGTERM) == 0


def test_failing_lifespan_ends_the_worker(folder, outlast):
    (folder / "bad.py").write_text(
        "from contextlib import asynccontextmanager\nfrom agent import report\nfrom outlast import Outlast\n\n"
        "@asynccontextmanager\nasync def lifespan(app):\n    raise RuntimeError('no database')\n    yield\n\n"
        "app = Outlast(lifespan=lifespan)\n"
    )
    with Worker(folder, "bad.py") as worker:
        assert worker.wait() == exit_codes.FAILED
        assert (worker.output, len(worker.error_lines)) == ("", 1)
    assert json.loads(worker.first)["error"].endswith("RuntimeError: no database")
    assert outlast("workers", "--json").json["workers"] == []


# -- logs


def test_a_worker_in_a_pipe_logs_json_and_text_if_asked(folder):
    with Worker(folder) as worker:
        first = json.loads(worker.first)
        assert (first["level"], first["logger"], first["event"]) == (
            "info",
            "outlast.worker",
            "working",
        )
        assert first["workflows"] == ["gated", "report"]
    with Worker(folder, "agent.py", "--log", "text") as worker:
        assert " INFO " in worker.first
        assert "concurrency=20" in worker.first


def test_a_program_that_has_set_up_logging_keeps_its_own(folder):
    (folder / "logged.py").write_text(
        "import logging\nfrom agent import report\nlogging.basicConfig(format='mine %(message)s', level='INFO')\n"
    )
    with Worker(folder, "logged.py") as worker:
        assert worker.first == "mine The worker is ready."
    with Worker(folder, "logged.py", "--log", "json") as worker:
        assert json.loads(worker.first)["event"] == "working"


def test_submit_uses_the_settings_of_the_app(folder, outlast):
    (folder / "svc.py").write_text(
        "from outlast import Outlast, workflow\n\n\n@workflow\nasync def job() -> int:\n    return 1\n\n\n"
        "app = Outlast('sqlite:///svc.db', workflows=[job], max_attempts=2)\n"
    )
    outlast("submit", "svc.py:job", "--id", "theirs")
    shown = outlast("show", "theirs", "--json", "--store", "sqlite:///svc.db").json
    assert shown["run"]["id"] == "theirs"
    with closing(sqlite3.connect(folder / "svc.db")) as db:
        assert db.execute("SELECT attempts_max FROM runs").fetchone() == (2,)
    assert not (folder / "outlast.db").exists()
    outlast("submit", "svc.py:job", "--id", "elsewhere", "--store", "sqlite:///other.db")
    assert (folder / "other.db").exists()
