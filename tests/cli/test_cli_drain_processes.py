"""`outlast drain` and real workers: what they finish and release."""

from __future__ import annotations

import threading

import pytest
from cli_processes import Worker, wait_for_file

from outlast.cli.os_user import os_user
from outlast.store.address import store_at
from support.waiting import WAIT_SECONDS, wait_until

BY = f" (by {os_user()})"
"""What the command adds to a reason: who asked."""
BY_DEFAULT = f"outlast drain{BY}"

PROGRAM = """
import asyncio
from pathlib import Path

from outlast import Outlast, step, workflow


@step
async def slow() -> str:
    Path("begun").touch()
    while not Path("open").exists():
        await asyncio.sleep(0.01)
    return "slow"


@workflow
async def job() -> str:
    return await slow() + await slow()
"""

CONSUMER = """
import asyncio
from contextlib import asynccontextmanager

from outlast import Outlast


async def handle(item): ...


@asynccontextmanager
async def lifespan(app):
    task = asyncio.create_task(app.queue("mail").consume(handle))
    yield
    task.cancel()


app = Outlast(lifespan=lifespan)
"""


@pytest.fixture
def patient(monkeypatch):
    """Have `outlast drain --wait` wait for a worker on a slow machine."""
    monkeypatch.setattr("outlast.cli.drain.HEAR_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr("outlast.cli.drain.LINGER_SECONDS", WAIT_SECONDS)


def is_draining(outlast):
    store = store_at(outlast.address)
    store.open()
    try:
        return any(row.draining for row in store.workers())
    finally:
        store.close()


def test_drained_worker_finishes_its_step_and_releases_its_run(outlast, patient):
    (outlast.folder / "jobs.py").write_text(PROGRAM)

    def end_the_step():
        wait_until(lambda: is_draining(outlast))
        (outlast.folder / "open").touch()

    with Worker(outlast.folder, "jobs.py", OUTLAST_GRACE="600") as worker:
        outlast("submit", "jobs.py:job", "--id", "j1")
        wait_for_file(outlast.folder / "begun")
        later = threading.Thread(target=end_the_step)
        later.start()
        answer = outlast("drain", "--wait", "--why", "a deploy")
        later.join()
        assert (answer.code, answer.err.endswith(": 1 released.\n")) == (0, True), answer.err
        assert worker.wait() == 0
    assert outlast("workers", "--json").json["workers"] == []
    row = outlast.row("j1")
    assert (row.status, row.interruptions, row.deaths) == ("queued", 1, 0)
    assert outlast("drains", "--json").json["drains"][0]["reason"] == f"a deploy{BY}"


def test_drain_reaches_a_worker_that_only_consumes(outlast, patient):
    (outlast.folder / "mail.py").write_text(CONSUMER)
    with Worker(outlast.folder, "mail.py") as worker:
        answer = outlast("drain", "--wait")
        assert answer.code == 0, answer.err
        assert worker.wait() == 0


def test_signal_and_request_make_one_drain(outlast):
    (outlast.folder / "jobs.py").write_text(PROGRAM)
    with Worker(outlast.folder, "jobs.py", OUTLAST_GRACE="600") as worker:
        outlast("submit", "jobs.py:job", "--id", "j1")
        wait_for_file(outlast.folder / "begun")
        assert outlast("drain").code == 0
        worker.terminate()
        wait_until(lambda: is_draining(outlast))
        (outlast.folder / "open").touch()
        assert worker.wait() == 0
    assert len(outlast("drains", "--json").json["drains"]) == 1
