"""Workers claim runs in order: within the limit of the queue, by priority, interrupted runs first, new runs get a share."""

from fleet_flows import gated, one_step
from fleet_tools import at_once

from support.waiting import wait_until


def test_queue_limit_holds_over_all_workers(fleet):
    fleet.do(lambda app: app.queue("default").limit(concurrency=3))
    fleet.start_many(3, "gated", "one_step", concurrency=2)
    ids = [f"r{n}" for n in range(20)]
    fleet.submit([gated("first-gate") if n < 3 else one_step(n) for n in range(20)], ids)
    wait_until(lambda: len(fleet.lines()) == 3)
    fleet.make("first-gate")
    fleet.until_all_are("done")
    lines = fleet.log.update()
    assert at_once(lines) == 3
    assert sorted(line.run for line in lines if line.when == "after") == sorted(ids)
    assert len({line.pid for line in lines}) > 1, (
        "a worker has two slots: three at once are two workers"
    )
    fleet.do(lambda app: app.queue("default").limit(concurrency=None))
    fleet.submit([gated("gate") for n in range(10)], [f"more{n}" for n in range(10)], queue="other")
    fleet.start("gated", queues="other", concurrency=10)
    wait_until(lambda: len([line for line in fleet.lines() if line.run.startswith("more")]) == 10)


def test_dead_worker_frees_its_share_of_a_limited_queue(fleet):
    fleet.do(lambda app: app.queue("default").limit(concurrency=2))
    victim = fleet.is_up(fleet.start("gated", "one_step"))
    fleet.submit([gated("gate"), gated("gate"), one_step(1), one_step(2)], ["a", "b", "c", "d"])
    wait_until(lambda: len(fleet.lines(pid=victim.pid)) == 2)
    victim.kill()
    fleet.make("gate")
    fleet.start_many(2, "gated", "one_step")
    fleet.until_all_are("done")
    assert at_once([line for line in fleet.log.update() if line.pid != victim.pid]) <= 2
    (queue,) = fleet.do(lambda app: app.queues())
    assert (queue.queued, queue.running) == (0, 0)


def test_higher_priority_goes_first_then_the_older_run(fleet):
    async def submit(app):
        for id, priority in [("a0", 0), ("b5", 5), ("c-1", -1), ("d5", 5), ("e0", 0), ("f1", 1)]:
            await app.submit(one_step(0), id=id, priority=priority)

    fleet.do(submit)
    fleet.start("one_step", concurrency=1)
    fleet.until_all_are("done")
    assert [line.run for line in fleet.lines()] == ["b5", "d5", "f1", "a0", "e0", "c-1"]


def test_interrupted_run_goes_before_an_older_new_run(fleet):
    async def submit(app):
        await app.submit(one_step(0), id="older")
        await app.submit(gated("gate"), id="interrupted")
        await app.submit(one_step(0), id="newer")

    first = fleet.is_up(
        fleet.start("gated", concurrency=1, new_share=0)
    )  # it leaves the others alone
    fleet.do(submit)
    wait_until(lambda: fleet.lines(pid=first.pid))
    fleet.end(first)
    assert fleet.image().kinds("interrupted") == ["interruption"]
    fleet.make("gate")
    second = fleet.start("gated", "one_step", concurrency=1, new_share=0)
    fleet.until_all_are("done")
    first_of_all, *others = [line.run for line in fleet.lines(pid=second.pid)]
    assert first_of_all == "interrupted"
    assert sorted(others) == ["newer", "older"]
    assert {run["deaths"] for run in fleet.image().runs.values()} == {0}


def test_returned_runs_leave_a_share_of_the_slots_to_new_runs(fleet):
    returned, new = [f"returned{n}" for n in range(10)], [f"new{n}" for n in range(10)]
    first = fleet.start("gated", concurrency=10)
    fleet.submit([gated("gate")] * 10, returned)
    wait_until(lambda: len(fleet.lines(pid=first.pid)) == 10)
    fleet.end(first)
    fleet.submit([gated("gate")] * 10, new)
    second = fleet.start("gated", concurrency=5, new_share=0.4)
    wait_until(lambda: len(fleet.lines(pid=second.pid)) == 5)
    taken = [line.run for line in fleet.lines(pid=second.pid)]
    assert sum(run in new for run in taken) == 2, taken
    fleet.make("gate")
    fleet.until_all_are("done")
