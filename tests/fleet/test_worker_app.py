"""A worker in one process, on the virtual clock: what is claimed when, what waits, and who is told."""

import asyncio
import math
from contextlib import asynccontextmanager

import pytest

from outlast import (
    Backpressure,
    Conflict,
    Draining,
    LimitExceeded,
    Outlast,
    OutlastError,
    RunParked,
    SettingsError,
    WrongStatus,
    current,
    effect,
    receive,
    sleep,
    step,
    workflow,
)
from outlast.store.rows import SUSPECT_DEATHS
from outlast.store.verbs import Claim, Enlist, Record, Release
from outlast.testing import App

done: list = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def note(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    return label


@workflow
async def job(label: str, seconds: float = 0.0) -> str:
    return await note(label, seconds)


@workflow
async def nap(seconds: float) -> str:
    await note("before")
    await sleep(seconds)
    return await note("after")


@workflow
async def letter() -> str:
    return await receive("go", str)


@workflow
async def parent(seconds: float) -> str:
    return "child said " + await nap(seconds)


@workflow
async def strange(label: str) -> str:
    return label


WORKFLOWS = [job, nap, letter, parent]


def worker(**settings) -> App:
    return App(worker=True, workflows=WORKFLOWS, **{"ramp": 0, "new_share": 0, **settings})


def test_a_submitted_run_is_executed_by_a_worker():
    async def main(app):
        run = await app.submit(job("x"))
        return await run.result()

    assert worker().do(main) == "x"


def test_a_program_that_is_no_worker_executes_nothing():
    async def main(app):
        await app.submit(job("x"), id="r")
        await asyncio.sleep(100)
        return (await app.runs())[0].status

    assert App().do(main) == "queued"
    assert done == []


def test_priority_then_age_decides():
    async def main(app):
        # One slot, and it is taken.
        await app.submit(job("first", 10))
        await asyncio.sleep(1)
        runs = [
            await app.submit(job("low"), priority=-1),
            await app.submit(job("a")),
            await app.submit(job("b")),
            await app.submit(job("high"), priority=7),
        ]
        for run in runs:
            await run.result()

    worker(concurrency=1).do(main)
    assert done == ["first", "high", "a", "b", "low"]


def test_a_delayed_run_is_claimed_when_it_is_due_and_not_before():
    async def main(app):
        start = app.clock()
        run = await app.submit(job("x"), delay=3600)
        await run.result()
        return app.clock() - start

    assert worker().do(main) == pytest.approx(3600, abs=1)


def test_no_more_are_claimed_than_there_are_slots():
    async def main(app):
        await app.submit_many([job(str(number), 10) for number in range(7)])
        await asyncio.sleep(1)
        return [(await app.queues())[0].running, (await app.workers())[0].held, len(done)]

    assert worker(concurrency=3).do(main) == [3, 3, 3]


def test_a_queue_with_a_limit_of_its_own_keeps_to_it():
    async def main(app):
        await app.queue("narrow").limit(concurrency=2)
        await app.submit_many([job(str(number), 10) for number in range(5)], queue="narrow")
        await app.submit(job("wide", 10))
        await asyncio.sleep(1)
        running = {queue.name: queue.running for queue in await app.queues()}
        await asyncio.sleep(100)
        return running, len(done)

    assert worker(queues="default,narrow", concurrency=10).do(main) == ({"default": 1, "narrow": 2}, 6)


def test_workflows_that_the_worker_does_not_know_wait_and_are_reported(caplog):
    async def main(app):
        await app.submit(job("known"))
        # Submitted by a program with newer code.
        newer = Outlast(app._store)
        newer._inline = True
        async with newer:
            await newer.submit(strange("x"), id="strange")
        await asyncio.sleep(10)
        return app.store.run("strange").status

    assert worker().do(main) == "queued"
    assert done == ["known"]
    assert "runs of workflow strange wait for a worker that knows it" in caplog.text


def test_a_sleeping_run_holds_no_worker_and_comes_back_when_due():
    async def main(app):
        runs = await app.submit_many([nap(3600.0) for _ in range(50)])
        await asyncio.sleep(60)
        held = (await app.workers())[0].held
        waiting = (await app.queues())[0].waiting
        await asyncio.gather(*[run.result() for run in runs])
        return held, waiting, app._open.claimer.hands, app._open.lives

    assert worker(concurrency=5).do(main) == (0, 50, {}, {})
    assert done.count("before") == done.count("after") == 50


def test_a_receiving_run_holds_no_worker_and_comes_back_when_sent_to():
    async def main(app):
        run = await app.submit(letter(), id="letter")
        await asyncio.sleep(60)
        info = await run.info()
        await app.send("letter", "other", "not this one")
        await asyncio.sleep(1)
        still = (await run.info()).status
        await app.send("letter", "go", "hello")
        return info.status, info.waiting_for, info.worker, still, await run.result(timeout=5)

    assert worker().do(main) == ("waiting", ("go",), None, "waiting", "hello")


def test_a_parent_that_waits_for_a_sleeping_child_holds_no_worker_either():
    async def main(app):
        run = await app.submit(parent(3600.0), id="parent")
        await asyncio.sleep(60)
        statuses = {info.workflow: info.status for info in await app.runs()}
        result = await run.result()
        return statuses, result, {info.queue for info in await app.runs()}

    statuses, result, queues = worker().do(main)
    assert statuses == {"parent": "waiting", "nap": "waiting"}
    assert result == "child said after"
    assert queues == {"default"}
    assert done == ["before", "after"]


def test_a_child_goes_where_its_parent_goes():
    async def main(app):
        await (await app.submit(parent(3600.0), queue="gpu", priority=3)).result()
        return {(info.queue, info.priority) for info in await app.runs()}

    assert worker(queues=["gpu"]).do(main) == {("gpu", 3)}


def test_a_cancelled_sleeper_is_cancelled_soon():
    async def main(app):
        run = await app.submit(nap(1e6), id="nap")
        await asyncio.sleep(60)
        assert await app.cancel("nap", "enough") == "waiting"
        await asyncio.sleep(1)
        return (await run.info()).status

    assert worker().do(main) == "cancelled"


def test_a_worker_with_a_suspect_takes_nothing_else_until_it_has_recorded_something():
    app = worker(concurrency=10)

    async def main(app):
        store = app.store
        await app.submit(job("suspect", 1.0), id="suspect")
        for _ in range(SUSPECT_DEATHS):
            _claimed_elsewhere(store, "suspect")
            _died(store, "elsewhere")
        assert store.run("suspect").is_suspect

    App(app.store, clock=app.clock).do(main)  # no worker yet

    async def work(app):
        held = []
        run = app.get(job, "suspect")
        others = await app.submit_many([job(str(number), 5) for number in range(5)])
        for _ in range(40):
            held.append((app._open.room.alone, list(app._open.lives)))
            await asyncio.sleep(0.05)
        for other in [run, *others]:
            await other.result()
        return held

    held = app.do(work)
    assert any(alone is not None and lives == ["suspect"] for alone, lives in held)
    assert all(lives in (["suspect"], []) for alone, lives in held if alone is not None), "nothing beside it"
    assert done[0] == "suspect"
    assert app.store.run("suspect").status == "done"


def test_a_claim_that_nobody_has_in_hand_is_given_back():
    async def stray(app):
        await app.submit(job("y"), id="stray", queue="elsewhere")
        (rows,) = app.store.commit([Claim(app._open.worker.id, "lost answer", ids=("stray",))])
        assert rows[0].worker == app._open.worker.id
        await asyncio.sleep(30)
        return app.store.run("stray")

    row = App(worker=True, workflows=[job], poll=2.0, heartbeat=0.2, lease=1e6).do(stray)
    assert (row.status, row.worker, row.interruptions, row.deaths) == ("queued", None, 0, 0)


def test_an_interrupted_run_goes_before_new_ones_but_leaves_them_their_share():
    app = worker(concurrency=5, new_share=0.2, returned_rate=1e6)

    async def give_back(app):
        for number in range(20):
            await app.submit(job(f"back-{number}", 10), id=f"back-{number}")
            (row,) = _claimed_elsewhere(app.store, f"back-{number}")
            assert app.store.commit([Release(row.pk, row.fence, "deploy")]) == ["queued"]
        await app.submit_many([job(f"new-{number}", 10) for number in range(20)])

    App(app.store, clock=app.clock).do(give_back)

    async def work(app):
        await asyncio.sleep(1)
        first = sorted(done)
        await asyncio.sleep(1000)
        return first

    first = app.do(work)
    assert [label.split("-")[0] for label in first] == ["back"] * 4 + ["new"]
    assert len(done) == 40


def test_a_full_queue_is_backpressure_and_nothing_is_written():
    async def main(app):
        await app.queue("small").limit(depth=2)
        await app.submit(job("a"), queue="small", id="a")
        with pytest.raises(Backpressure) as refused:
            await app.submit_many([job("b"), job("c")], queue="small")
        assert (refused.value.queue, refused.value.depth, refused.value.limit) == ("small", 1, 2)
        assert "outlast limit" in str(refused.value)
        await app.submit(job("b"), queue="small", id="b")
        with pytest.raises(Backpressure):
            await app.submit(job("c"), queue="small", wait=5)
        await app.submit(job("a"), queue="small", id="a")  # it is there: nothing to refuse
        with pytest.raises(Backpressure):  # would never fit
            await app.submit_many([job("d")] * 3, queue="small", wait=math.inf)
        return len(await app.runs())

    assert App().do(main) == 2


def test_who_waits_for_room_gets_it():
    async def main(app):
        await app.queue("default").limit(depth=1)
        await app.submit_many([job("a", 10)])
        await asyncio.sleep(1)  # claimed: there is room again
        await app.submit(job("b", 10))
        start = app.clock()
        last = await app.submit(job("c"), wait=math.inf)
        waited = app.clock() - start
        await last.result()
        return waited

    assert worker(concurrency=1).do(main) == pytest.approx(9, abs=1)


def test_submit_many_is_all_or_nothing():
    async def main(app):
        await app.submit(job("x"), id="taken")
        with pytest.raises(Conflict, match="taken"):
            await app.submit_many([job("y"), job("z")], ids=["free", "taken"])
        with pytest.raises(Conflict, match="twice"):
            await app.submit_many([job("y"), job("z")], ids=["twice", "twice"])
        with pytest.raises(ValueError, match="as many ids"):
            await app.submit_many([job("y")], ids=[])
        with pytest.raises(SettingsError, match="delay"):
            await app.submit(job("y"), delay=-1)
        with pytest.raises(SettingsError, match="wait"):
            await app.submit(job("y"), wait=float("nan"))
        with pytest.raises(LimitExceeded, match="submit_many_max"):
            await app.submit_many([job("y")] * 11)
        assert await app.submit_many([]) == []
        return [info.id for info in await app.runs()]

    assert App(submit_many_max=10).do(main) == ["taken"]


def test_the_lifespan_is_around_everything_that_executes():
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


def test_a_lifespan_that_fails_leaves_nothing_behind():
    @asynccontextmanager
    async def lifespan(_):
        raise RuntimeError("no pool")
        yield

    app = App(lifespan=lifespan)
    with pytest.raises(RuntimeError, match="no pool"):
        app.do(lambda _: asyncio.sleep(0))
    assert app.store.workers() == []


def test_hooks_are_told_of_the_parked_and_the_dead():
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
        (claimed,) = _claimed_elsewhere(app.store, row.id)
        app.store.commit([Record(claimed.pk, 1, claimed.fence, "step", "gone#1", 1.0)])
        app.store.commit([Release(claimed.pk, claimed.fence, "new code")])
        await app.start(job("x"), id="diverged")
        await app.submit(job("y"), id="dead", queue="elsewhere")
        _claimed_elsewhere(app.store, "dead")
        app.store._presence._held.discard("elsewhere")  # its process is gone
        await asyncio.sleep(10)

    app.do(main)
    assert ("dead", "dead", "dead", 1) in told
    assert [(what, id, status) for what, id, status, _ in told if what == "parked"] == [
        ("parked", "diverged", "parked")
    ]


@effect(timeout=1, undo=None)
async def post() -> str:
    raise ConnectionError("the line was cut")


@workflow
async def posting() -> str:
    return await post()


def test_a_hook_is_called_to_its_end_though_the_app_is_left_at_once():
    told = []

    async def on_parked(info):
        await asyncio.sleep(1)
        told.append(info.id)

    async def main(app):
        with pytest.raises(RunParked):
            await (await app.submit(posting(), id="letter-1")).result()

    App(worker=True, workflows=[posting], on_parked=on_parked, ramp=0).do(main)
    assert told == ["letter-1"]


def test_a_hook_is_called_to_its_end_for_an_item_that_fails_while_the_app_is_left():
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


def test_an_item_is_not_acked_before_what_its_handler_gave_is_awaited():
    async def handle(item, seconds):
        await asyncio.sleep(seconds)
        done.append(item.payload)

    async def main(app):
        await app.queue("mail").put("ann")
        consuming = asyncio.create_task(app.queue("mail").consume(lambda item: handle(item, 1)))
        await asyncio.sleep(5)
        consuming.cancel()
        return await app.queue("mail").size()

    assert (App(ramp=0).do(main), done) == (0, ["ann"])


def yielding(item):
    yield item


async def yielding_later(item):
    yield item


@pytest.mark.parametrize(
    "handler",
    [note, job, None, yielding, yielding_later],
    ids=["step", "workflow", "none", "generator", "async generator"],
)
def test_what_cannot_handle_an_item_is_refused_before_one_is_taken(handler):
    async def main(app):
        with pytest.raises(TypeError, match=r"consume\(\) takes a"):
            await app.queue("mail").consume(handler)

    App().do(main)


def test_a_worker_must_be_told_what_it_may_execute():
    with pytest.raises(SettingsError, match="workflows"):
        App(worker=True).do(lambda _: asyncio.sleep(0))
    with pytest.raises(TypeError, match="workflow"):
        App(worker=True, workflows=[print])


def test_an_app_is_configured_before_it_is_opened():
    app = App(concurrency=3)
    app.configure(worker=True, workflows=[job], queues=["a", "b"], lease=1e8)
    assert (app.settings.concurrency, app.settings.queues, app.settings.lease) == (3, "a,b", 1e8)

    async def main(app):
        with pytest.raises(OutlastError, match="only before"):
            app.configure(worker=False)
        (info,) = await app.workers()
        return info.queues, info.workflows, info.concurrency, info.seems_dead

    assert app.do(main) == (("a", "b"), ("job",), 3, False)


def test_items_are_put_claimed_acked_and_nacked():
    async def main(app):
        queue = app.queue("q")
        assert await queue.put({"n": 1}, id="one") == "one"
        assert await queue.put({"n": 1}, id="one") == "one"
        with pytest.raises(Conflict):
            await queue.put({"n": 2}, id="one")
        await queue.put("late", delay=100)
        assert await queue.size() == 2
        item = await queue.claim()
        assert (item.id, item.queue, item.payload, item.attempts) == ("one", "q", {"n": 1}, 1)
        assert item.fence > 0
        assert await queue.claim() is None
        await item.nack(delay=7, reason="not now")
        again = await queue.claim(wait=20)
        assert (again.id, again.attempts) == ("one", 2)
        await again.ack()
        late = await queue.claim(wait=math.inf)
        assert late.payload == "late"
        assert await queue.size() == 0
        await app.runs()
        return [info.id for info in await app.runs()], len(await app.runs(items=True))

    assert App().do(main) == ([], 2)


def test_an_item_that_fails_too_often_is_a_dead_letter_that_can_be_retried():
    dead = []

    async def main(app):
        queue = app.queue("q")
        await queue.put("bad", id="bad")
        tries = []

        async def handle(item):
            tries.append((item.attempts, round(app.clock() - start)))
            raise ValueError("broken")

        start = app.clock()
        consumer = asyncio.create_task(queue.consume(handle, concurrency=2))
        await asyncio.sleep(600)
        assert tries == [(1, 0), (2, 1), (3, 3)]
        (letter,) = await app.runs(status="dead", items=None)
        assert (letter.id, letter.reason) == ("q/bad", "ValueError('broken')")
        await app.retry("q/bad")
        await asyncio.sleep(600)
        assert len(tries) == 6
        assert await app.cancel("q/bad") == "cancelled"
        consumer.cancel()
        await asyncio.wait([consumer])

    App(max_attempts=3, ramp=0, on_dead=lambda info: dead.append(info.id)).do(main)
    assert dead == ["q/bad", "q/bad"]


def test_a_consumer_that_stops_gives_its_items_back_ahead_of_new_ones():
    async def main(app):
        queue = app.queue("q")
        await queue.put("slow", id="slow")
        started = asyncio.Event()

        async def handle(_):
            started.set()
            await asyncio.sleep(1000)

        consumer = asyncio.create_task(queue.consume(handle))
        await started.wait()
        await queue.put("new")
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await asyncio.sleep(1)
        item = await queue.claim()
        return item.payload, item.attempts, len(app._open.room.hands)

    assert App(ramp=0).do(main) == ("slow", 1, 1)


def test_a_plain_function_consumes_in_a_thread():
    async def main(app):
        queue = app.queue("q")
        await queue.put_many(list(range(10)))
        consumer = asyncio.create_task(queue.consume(lambda item: done.append(item.payload), concurrency=3))
        while len(done) < 10:
            await asyncio.sleep(1)
        consumer.cancel()
        await asyncio.wait([consumer])
        return await queue.size()

    assert App(ramp=0).do(main) == 0
    assert sorted(done) == list(range(10))


def test_nothing_is_put_while_the_process_is_on_its_way_out():
    async def main(app):
        app._open.draining = True
        with pytest.raises(Draining, match="on its way out"):
            await app.queue("q").put(1)
        with pytest.raises(Draining):
            await app.queue("q").claim()

    App().do(main)


def test_items_still_in_hand_are_given_back_when_outlast_closes():
    app = App()

    async def main(app):
        await app.queue("q").put(1, id="one")
        return (await app.queue("q").claim()).attempts

    assert app.do(main) == 1
    row = app.store.run("q/one")
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("queued", None, 0, 1)
    assert app.do(main) == 1, "an interruption is no attempt"


def test_limits_of_a_queue_are_kept_changed_and_taken_away():
    async def main(app):
        queue = app.queue("q")
        await queue.limit(depth=5, concurrency=2)
        await queue.limit(depth=7)
        (info,) = await app.queues()
        assert (info.depth_max, info.concurrency_max) == (7, 2)
        await queue.limit(concurrency=None)
        (info,) = await app.queues()
        assert (info.depth_max, info.concurrency_max) == (7, None)
        for bad in (0, -1, 1.5):
            with pytest.raises(ValueError, match="depth"):
                await queue.limit(depth=bad)

    App().do(main)


def test_a_run_sees_its_fence_grow_from_claim_to_claim():
    fences = []

    @step
    async def look(number: int) -> int:
        fences.append(current().fence)
        return number

    @workflow(name="fenced")
    async def fenced() -> int:
        await look(1)
        await sleep(100)
        return await look(2)

    async def main(app):
        await (await app.submit(fenced())).result()

    App(worker=True, workflows=[fenced], ramp=0).do(main)
    assert fences[0] < fences[1]


def _claimed_elsewhere(store, id):
    store.hold("elsewhere")
    store.commit([Enlist("elsewhere", "host", 1, 1e6)])
    return store.commit([Claim("elsewhere", f"claim of {id}", ids=(id,))])[0]


def _died(store, worker):
    from outlast.store.verbs import Sweep

    store.let_go(worker)
    return store.commit([Sweep(backoff=0.0)])[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 1.5},
        {"priority": True},
        {"priority": 10**30},
        {"delay": float("nan")},
        {"delay": "5"},
        {"wait": -1},
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(wrong):
    async def main(app):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            await app.submit(job("x"), **wrong)
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            await app.queue("q").put(1, **wrong)
        with pytest.raises(TypeError, match="a call of a workflow"):
            await app.submit(job)
        assert await app.runs(items=None) == []
        await app.queue("q").put(1)
        item = await app.queue("q").claim()
        for delay in (float("nan"), -1):
            with pytest.raises(SettingsError, match="delay"):
                await item.nack(delay=delay)
        await item.ack()
        with pytest.raises(WrongStatus, match="acked or nacked already"):
            await item.nack()
        for concurrency in (0, -1, 1.5):
            with pytest.raises(SettingsError, match="concurrency"):
                await app.queue("q").consume(print, concurrency=concurrency)

    App().do(main)


@pytest.mark.parametrize("log_values", [0, 100])
def test_the_log_says_what_an_operator_needs(caplog, log_values):
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

    App(worker=True, workflows=[failing], on_dead=on_dead, max_attempts=1, ramp=0, log_values=log_values).do(
        main
    )
    by_text = {record.getMessage(): record for record in caplog.records}
    failed = by_text["run f failed: ValueError: no such topic" if log_values else "run f failed: ValueError"]
    assert (failed.levelname, failed.run, failed.workflow, failed.status) == (
        "WARNING",
        "f",
        "failing",
        "failed",
    )
    assert failed.worker
    why = "no such mailbox" if log_values else "`outlast show q/bad` says why"
    dead = by_text[f"item q/bad is a dead letter: {why}"]
    assert (dead.levelname, dead.reason, dead.queue) == (
        "ERROR",
        "no such mailbox" if log_values else None,
        "q",
    )
    assert "on_dead failed, called for item q/bad" in by_text
