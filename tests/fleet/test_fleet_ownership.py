"""A run has one owner at a time, also while a worker is taken for dead."""

import asyncio
import threading
import time

from fleet_work import RARELY, begun, blocked, gates, job, lose_the_worker, most, virtual, worker

from outlast.store.commands import Claim, DeregisterWorker
from support.waiting import WAIT_SECONDS, wait_until_async


def test_run_submitted_and_started_at_once_is_executed_once():
    async def main():
        async with worker(**RARELY) as app:
            engine, loop, looked = app._open, asyncio.get_running_loop(), threading.Event()
            run, held, deliver = engine.store.run, engine.store.held, engine.writer._deliver

            def claim_now():
                engine.isolation.stop_yielding("this test")
                engine.claimers.own.wake()

            def run_once_claimed(id):
                """Who takes the run over looks when the claimer has it and does not know yet."""
                loop.call_soon_threadsafe(claim_now)
                deadline = time.monotonic() + WAIT_SECONDS
                while (row := run(id)).worker is None and time.monotonic() < deadline:
                    time.sleep(0.001)
                engine.store.run = run
                return row

            def held_looked_at(worker):
                found = held(worker)
                looked.set()
                return found

            def deliver_late(batch, outcomes):
                if any(
                    isinstance(one.command, Claim) and rows for one, rows in zip(batch, outcomes)
                ):
                    looked.wait(WAIT_SECONDS)
                    time.sleep(0.05)  # for what it does about it
                deliver(batch, outcomes)

            engine.isolation.start_yielding("this test")  # nothing is claimed yet
            await app.submit(job("r", 0.1), id="r")
            engine.store.run, engine.store.held = run_once_claimed, held_looked_at
            engine.writer._deliver = deliver_late
            started = await app.start(job("r", 0.1), id="r")
            assert await started.result(timeout=WAIT_SECONDS) == "r"
            assert looked.is_set()
            await wait_until_async(
                lambda: not engine.in_flight.held() and not engine.claimers.own.slots.used
            )

    asyncio.run(main())
    assert begun == ["r"]


def test_run_is_not_executed_again_while_a_thread_of_it_still_executes():
    gates.update({label: threading.Event() for label in "abc"})

    async def main():
        async with worker(concurrency=2) as app:
            engine = app._open
            first = await app.submit(blocked("a"), id="a")
            await wait_until_async(lambda: begun == ["a"])
            await lose_the_worker(app)
            others = [await app.submit(blocked(label), id=label) for label in "bc"]
            # One slot is the old life's, and the other is enough to claim the run again.
            await wait_until_async(lambda: len(engine.in_flight.held()) == 2)
            assert [row.id for row in engine.in_flight.held()] == ["a", "a"]
            assert begun == ["a"]
            for gate in gates.values():
                gate.set()
            assert [await run.result(timeout=WAIT_SECONDS) for run in (first, *others)] == [
                "a",
                "b",
                "c",
            ]
            await wait_until_async(lambda: not engine.in_flight.held())
            assert not engine.claimers.own.slots.used

    asyncio.run(main())
    assert sorted(begun) == ["a", "a", "b", "c"], (
        "the old life had lost the run: what it did is not recorded"
    )
    assert most["a"] == 1
    assert most["runs"] <= 2


def test_worker_whose_claim_is_refused_drops_its_runs():
    async def main(app):
        engine = app._open
        run = await app.submit(job("long", 1000), id="long")
        await asyncio.sleep(1)
        (old,) = engine.in_flight.executions.values()
        await engine.writer.execute(DeregisterWorker(engine.worker.id))
        assert await (await app.submit(job("short"))).result(timeout=5) == "short"
        assert old.end_reason is not None
        assert {execution.row.worker for execution in engine.in_flight.executions.values()} <= {
            engine.worker.id
        }
        return await run.result()

    assert virtual().do(main) == "long"
    assert sorted(begun) == ["long", "long", "short"]
    assert most["long"] == 1
