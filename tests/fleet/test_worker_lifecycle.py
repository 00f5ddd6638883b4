"""A worker on the virtual clock: lifespans, hooks, configuration and logs."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from worker_work import (  # noqa: F401 - a fixture
    WORKFLOWS,
    claimed_elsewhere,
    done,
    fresh_work,
    job,
    note,
    posting,
    worker,
    yielding,
    yielding_later,
)

from outlast import (
    OutlastError,
    RunParked,
    SettingsError,
    workflow,
)
from outlast.store.commands import Record, Release
from outlast.testing import App


def test_lifespan_surrounds_everything_that_executes():
    @asynccontextmanager
    async def lifespan(app):
        assert app.settings.concurrency == 20
        done.append("open")
        yield
        done.append("closed")

    async def main(app):
        await app.submit(job("x", 1000))
        await asyncio.sleep(10)
        done.append("leaving")

    App(worker=True, workflows=[job], lifespan=lifespan, ramp=0).do(main)
    assert done == ["open", "x", "leaving", "closed"]


def test_lifespan_that_fails_leaves_nothing_behind():
    @asynccontextmanager
    async def lifespan(_):
        raise RuntimeError("no pool")
        yield

    app = App(lifespan=lifespan)
    with pytest.raises(RuntimeError, match="no pool"):
        app.do(lambda _: asyncio.sleep(0))
    assert app.store.workers() == []


def test_hooks_are_called_for_parked_and_dead_runs():
    told = []

    async def on_parked(info):
        await asyncio.sleep(1)
        told.append(("parked", info.id, info.status, info.reason))

    def on_dead(info):
        told.append(("dead", info.id, info.status, info.deaths))
        raise RuntimeError("a hook's own trouble")

    app = App(
        worker=True,
        workflows=WORKFLOWS,
        on_parked=on_parked,
        on_dead=on_dead,
        ramp=0,
        max_attempts=1,
        heartbeat=0.2,
        lease=1e6,
    )

    async def main(app):
        row = await (await app.submit(job("x"), id="diverged", queue="elsewhere")).info()
        (claimed,) = claimed_elsewhere(app.store, row.id)
        app.store.commit([Record(claimed.pk, 1, claimed.fence, "step", "gone#1", 1.0)])
        app.store.commit([Release(claimed.pk, claimed.fence, "new code")])
        await app.start(job("x"), id="diverged")
        await app.submit(job("y"), id="dead", queue="elsewhere")
        claimed_elsewhere(app.store, "dead")
        app.store._liveness._held.discard("elsewhere")  # its process is gone
        await asyncio.sleep(10)

    app.do(main)
    assert ("dead", "dead", "dead", 1) in told
    assert [(what, id, status) for what, id, status, _ in told if what == "parked"] == [
        ("parked", "diverged", "parked")
    ]


def test_hook_finishes_although_the_app_closes():
    told = []

    async def on_parked(info):
        await asyncio.sleep(1)
        told.append(info.id)

    async def main(app):
        with pytest.raises(RunParked):
            await (await app.submit(posting(), id="letter-1")).result()

    App(worker=True, workflows=[posting], on_parked=on_parked, ramp=0).do(main)
    assert told == ["letter-1"]


def test_hook_for_a_failing_item_finishes_although_the_app_closes():
    told = []

    async def handle(_):
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            raise ValueError("cut") from None

    async def on_dead(info):
        await asyncio.sleep(1)
        told.append(info.id)

    async def main(app):
        await app.queue("mail").put("ann", id="letter-1")
        consuming = asyncio.create_task(app.queue("mail").consume(handle))
        await asyncio.sleep(5)
        return consuming

    App(ramp=0, max_attempts=1, on_dead=on_dead).do(main)
    assert told == ["mail/letter-1"]


def test_worker_needs_workflows():
    with pytest.raises(SettingsError, match="workflows"):
        App(worker=True).do(lambda _: asyncio.sleep(0))
    with pytest.raises(TypeError, match="workflow"):
        App(worker=True, workflows=[print])


def test_open_app_cannot_be_configured():
    app = App(concurrency=3)
    app.configure(worker=True, workflows=[job], queues=["a", "b"], lease=1e8)
    assert (app.settings.concurrency, app.settings.queues, app.settings.lease) == (3, "a,b", 1e8)

    async def main(app):
        with pytest.raises(OutlastError, match="is already open"):
            app.configure(worker=False)
        (info,) = await app.workers()
        return info.queues, info.workflows, info.concurrency, info.seems_dead

    assert app.do(main) == (("a", "b"), ("job",), 3, False)


@pytest.mark.parametrize("log_values", [0, 100])
def test_log_says_what_an_operator_needs(caplog, log_values):
    caplog.set_level("INFO", logger="outlast")

    @workflow(name="failing")
    async def failing() -> None:
        raise ValueError("no such topic")

    def on_dead(_):
        raise RuntimeError("a hook's own trouble")

    async def main(app):
        with pytest.raises(ValueError, match="topic"):
            await (await app.submit(failing(), id="f")).result()
        await app.queue("q").put("bad", id="bad")
        await (await app.queue("q").claim()).nack(reason="no such mailbox")
        await asyncio.sleep(1)

    App(
        worker=True,
        workflows=[failing],
        on_dead=on_dead,
        max_attempts=1,
        ramp=0,
        log_values=log_values,
    ).do(main)
    by_text = {record.getMessage(): record for record in caplog.records}
    failed = by_text[
        "Run f failed: ValueError: no such topic" if log_values else "Run f failed: ValueError"
    ]
    assert (failed.levelname, failed.run, failed.workflow, failed.status) == (
        "WARNING",
        "f",
        "failing",
        "failed",
    )
    assert failed.worker
    why = "no such mailbox" if log_values else "`outlast show q/bad` shows why"
    dead = by_text[f"Item q/bad is a dead letter: {why}"]
    assert (dead.levelname, dead.reason, dead.queue) == (
        "ERROR",
        "no such mailbox" if log_values else None,
        "q",
    )
    assert "The hook on_dead failed for item q/bad." in by_text


@pytest.mark.parametrize("queue", ["customer-*", "customer-?", "customer-[ab]"])
def test_queue_name_that_looks_like_a_pattern_gets_a_warning(caplog, queue):
    @workflow
    async def nothing() -> None: ...

    app = App(worker=True, queues=[queue, "customer-1"], workflows=[nothing])
    app.do(lambda app: app.queues())
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        f"Queue {queue!r} is taken literally: patterns are not supported. Name each queue"
    )
