"""Plain items over real processes: each is handled once, unless its consumer dies."""

import asyncio
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from outlast import Backpressure, Conflict, Draining, LeaseLost, Outlast
from outlast.store.commands import Ack, Claim
from support.waiting import WAIT_SECONDS, wait_until, wait_until_async

CONSUME = {"consume": {"mail": "handle"}, "concurrency": 5}


def put(fleet, payloads, ids, **options):
    fleet.do(lambda app: app.queue("mail").put_many(payloads, ids=ids, **options))


def size(fleet) -> int:
    return fleet.do(lambda app: app.queue("mail").size())


def has_running(fleet) -> bool:
    return bool(fleet.ask("SELECT 1 FROM runs WHERE status = 'running'"))


def test_item_is_put_claimed_and_acked_or_nacked(fleet):
    async def use(app):
        queue = app.queue("mail")
        assert await queue.claim() is None
        assert await queue.put({"to": "ann"}, id="a") == "a"
        assert await queue.put({"to": "ann"}, id="a") == "a", (
            "putting the same item again is harmless"
        )
        with pytest.raises(Conflict, match="started as item "):
            await queue.put({"to": "bob"}, id="a")
        assert await queue.size() == 1
        item = await queue.claim()
        assert (item.id, item.payload, item.attempts) == ("a", {"to": "ann"}, 1)
        assert await queue.claim() is None, "it is claimed"
        await item.nack(delay=0.1, reason="not yet")
        again = await queue.claim(wait=WAIT_SECONDS)
        assert (again.id, again.attempts) == ("a", 2)
        assert again.fence > item.fence
        with pytest.raises(LeaseLost):
            await item.ack()
        await again.ack()
        await again.ack()
        assert await queue.size() == 0
        await queue.put("later", id="b")
        await (await queue.claim()).nack(delay=3600)
        assert await queue.claim() is None, "not before its delay"
        return await queue.claim(wait=0.1)

    assert fleet.do(use) is None


def test_item_that_fails_too_often_is_a_dead_letter_and_can_be_retried(fleet):
    async def use(app):
        queue, seen = app.queue("mail"), []
        await queue.put("x", id="x")
        for _ in range(3):
            item = await queue.claim(wait=WAIT_SECONDS)
            seen.append(item.attempts)
            await item.nack(delay=0, reason="no luck")
        assert await queue.claim() is None
        (dead,) = await app.runs(items=True, status="dead")
        assert dead.reason == "no luck"
        await app.retry(dead.id)
        item = await queue.claim(wait=WAIT_SECONDS)
        await item.ack()
        return seen, dead.id

    assert fleet.do(use) == ([1, 2, 3], "mail/x")


def test_consumers_in_several_processes_handle_every_item_once(fleet):
    fleet.start_many(2, "one_step", **CONSUME)
    ids = [f"i{n}" for n in range(30)]
    put(fleet, ["gated"] * 10 + list(range(20)), ids)
    wait_until(lambda: len(fleet.lines()) == 10)
    fleet.make("gate")
    wait_until(lambda: len(fleet.lines("after")) == 30)
    fleet.wait_until(lambda: size(fleet) == 0 and not has_running(fleet))
    assert sorted(line.run for line in fleet.lines()) == sorted(ids)
    assert len({line.pid for line in fleet.lines()}) == 2, "ten items at once take both consumers"


def test_ack_and_the_next_claim_are_one_commit(fleet, monkeypatch):
    """An item waits for commits, so two for each would halve the throughput. Only before a look for other work,
    twice a second, are acks committed alone."""
    slots, count = 20, 400
    commits: list[set[type]] = []
    looks: list[None] = []

    async def use(app):
        queue, handled, over = app.queue("mail"), Counter(), asyncio.Event()
        store = app._open.store
        commit, look = store.commit, store.peek
        monkeypatch.setattr(
            store,
            "commit",
            lambda commands: commits.append(set(map(type, commands))) or commit(commands),
        )
        monkeypatch.setattr(store, "peek", lambda *of: looks.append(None) or look(*of))

        async def handle(item):
            handled[item.id] += 1
            if len(handled) == count:
                over.set()

        await queue.put_many(range(count))
        consumer = asyncio.create_task(queue.consume(handle, concurrency=slots))
        await over.wait()
        consumer.cancel()
        await asyncio.wait([consumer])
        return max(handled.values())

    with loop_goes_first():
        assert fleet.do(use, ramp=0) == 1
    acked = [kinds for kinds in commits if Ack in kinds]
    alone = [kinds for kinds in acked if Claim not in kinds]
    assert len(alone) <= len(looks) + 1, "the last acks have no claim to go with"
    assert len(acked) >= count / slots


@contextmanager
def loop_goes_first():
    """Run no other thread before the loop waits, so the writer cannot begin between an ack and a claim."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_hook_is_called_for_an_item_whose_handler_always_fails(fleet):
    fleet.start_many(1, "one_step", **CONSUME)
    fleet.do(lambda app: app.queue("mail").put("failing", id="f"), max_attempts=2)
    wait_until(lambda: fleet.hooks("dead"))
    assert fleet.hooks("dead") == ["mail/f"]
    assert [line.attempt for line in fleet.lines()] == [1, 2]
    ((reason,),) = fleet.ask("SELECT reason FROM runs WHERE id = 'mail/f'")
    assert "it cannot be done" in reason


def test_items_of_a_killed_consumer_are_handled_by_another(fleet):
    victim = fleet.is_up(fleet.start("one_step", **CONSUME))
    put(fleet, ["gated"] * 5 + list(range(20)), [f"i{n}" for n in range(25)])
    wait_until(lambda: len(fleet.lines(pid=victim.pid)) == 5)
    victim.kill()
    fleet.make("gate")
    successor = fleet.start("one_step", **CONSUME)
    wait_until(lambda: len(fleet.lines("after")) == 25)
    fleet.wait_until(lambda: size(fleet) == 0 and not has_running(fleet))
    times = Counter(line.run for line in fleet.lines())
    assert times == {f"i{n}": 2 if n < 5 else 1 for n in range(25)}
    assert {line.attempt for line in fleet.lines(pid=successor.pid) if int(line.run[1:]) < 5} == {
        2
    }, "a death is an attempt"


def test_consumer_that_closes_releases_its_items_uncharged(fleet):
    first = fleet.is_up(fleet.start("one_step", **CONSUME))
    put(fleet, ["gated"] * 5, [f"i{n}" for n in range(5)])
    wait_until(lambda: len(fleet.lines(pid=first.pid)) == 5)
    fleet.end(first)
    assert set(fleet.ask("SELECT status, deaths, failures FROM runs")) == {("queued", 0, 0)}
    fleet.make("gate")
    second = fleet.start("one_step", **CONSUME)
    wait_until(lambda: len(fleet.lines("after")) == 5)
    assert {line.attempt for line in fleet.lines(pid=second.pid)} == {1}, (
        "an interruption is no attempt"
    )


@pytest.mark.parametrize("handler", ["handle_and_tidy", "handle_in_thread"])
def test_item_is_released_only_when_its_handler_has_ended(fleet, handler):
    options = {"consume": {"mail": handler}, "concurrency": 1}
    first = fleet.is_up(fleet.start("one_step", **options))
    put(fleet, ["x"], ["x"])
    wait_until(lambda: fleet.lines(pid=first.pid))
    second = fleet.is_up(fleet.start("one_step", **options))
    fleet.make("stopping")
    fleet.end(first)
    fleet.make("gate")
    wait_until(lambda: handler == "handle_in_thread" or fleet.lines("after", second.pid))
    order = [(line.when, line.pid) for line in fleet.log.update()][:3]
    assert order[:2] == [("before", first.pid), ("after", first.pid)], (
        "no other consumer gets it before its handler has ended"
    )
    fleet.until_all_are("done")
    assert fleet.lines(pid=second.pid) or handler == "handle_in_thread"


def test_item_whose_claim_is_cancelled_is_not_lost(fleet):
    """The claiming task may be cancelled just as the item is claimed."""

    async def use(app):
        queue, lost = app.queue("mail"), 0
        await queue.put_many(range(40), ids=[f"i{n}" for n in range(40)])
        for number in range(40):
            asking = asyncio.create_task(queue.claim())
            await asyncio.sleep(0.0002 * (number % 20))
            asking.cancel()
            await asyncio.wait([asking])
            if asking.cancelled():
                lost += 1
            elif (item := asking.result()) is not None:
                await item.ack()
        left = 0
        while not fleet.all_are("done"):
            if (item := await queue.claim(wait=0.5)) is not None:
                left += 1
                await item.ack()
        return lost, left

    lost, left = fleet.do(use, poll=0.3)
    print(f"{lost} claims were cancelled, {left} items were left")
    assert lost


def test_ack_by_a_worker_that_was_taken_for_dead_is_refused(fleet):
    """This process claims and gives no sign of life for longer than its lease; another handles the item."""

    async def use(app):
        queue = app.queue("mail")
        await queue.put("x", id="x")
        item = await queue.claim()
        app._open.worker._lease.stop()  # as in a process that is paused
        await asyncio.to_thread(fleet.let_lease_run_out, 2.0)
        successor = fleet.start("one_step", **CONSUME, clock=True)
        await wait_until_async(lambda: fleet.lines("after", successor.pid), successor.describe)
        with pytest.raises(LeaseLost):
            await item.ack()
        with pytest.raises(LeaseLost):
            await item.nack()

    fleet.set_clock(0.0)
    fleet.do(use, lease=2)
    fleet.wait_until(
        lambda: fleet.ask("SELECT status FROM runs WHERE id = 'mail/x'") in ([], [("done",)])
    )


def test_put_and_claim_are_refused_while_the_process_drains(fleet):
    refused = []

    async def main():
        entered = asyncio.Event()

        async def slow_to_end(item):
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                for use in (app.queue("mail").put("too late"), app.queue("mail").claim()):
                    try:
                        await use
                    except Draining as draining:
                        refused.append(str(draining))

        async with Outlast(fleet.address) as app:
            await app.queue("mail").put("x")
            consuming = asyncio.create_task(app.queue("mail").consume(slow_to_end))
            await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
        await asyncio.gather(consuming, return_exceptions=True)

    asyncio.run(main())
    assert len(refused) == 2
    assert all("shutting down" in text for text in refused)
    assert size(fleet) == 1, "the item was released, and nothing was put"


def test_put_into_a_full_queue_waits_for_room(fleet):
    async def fill(app):
        queue = app.queue("mail")
        await queue.limit(depth=5)
        await queue.put_many(range(5))
        with pytest.raises(Backpressure):
            await queue.put("more")
        waiting = asyncio.create_task(queue.put("more", id="more", wait=WAIT_SECONDS))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        fleet.start("one_step", **CONSUME)
        return await waiting

    assert fleet.do(fill) == "more"
    wait_until(lambda: len(fleet.lines("after")) == 6)
