"""Plain items over real processes: each is handled to its end by somebody, once unless a death was in between."""

import asyncio
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from fleet_tools import until

from outlast import Backpressure, Conflict, Draining, LeaseLost, Outlast
from outlast.store.verbs import Ack, Claim

CONSUME = {"consume": {"mail": "handle"}, "concurrency": 5}


def put(fleet, payloads, ids, **options):
    fleet.do(lambda app: app.queue("mail").put_many(payloads, ids=ids, **options))


def size(fleet) -> int:
    return fleet.do(lambda app: app.queue("mail").size())


def test_an_item_is_put_claimed_and_acked_or_nacked(fleet):
    async def use(app):
        queue = app.queue("mail")
        assert await queue.claim() is None
        assert await queue.put({"to": "ann"}, id="a") == "a"
        assert await queue.put({"to": "ann"}, id="a") == "a", "the same again is harmless"
        with pytest.raises(Conflict, match="started as item "):
            await queue.put({"to": "bob"}, id="a")
        assert await queue.size() == 1
        item = await queue.claim()
        assert (item.id, item.payload, item.attempts) == ("a", {"to": "ann"}, 1)
        assert await queue.claim() is None, "it is in hand"
        await item.nack(delay=0.3, reason="not yet")
        assert await queue.claim() is None, "not before its delay"
        again = await queue.claim(wait=10)
        assert (again.id, again.attempts) == ("a", 2)
        assert again.fence > item.fence
        with pytest.raises(LeaseLost):
            await item.ack()
        await again.ack()
        await again.ack()
        assert await queue.size() == 0
        return await queue.claim(wait=0.1)

    assert fleet.do(use) is None


def test_an_item_that_fails_too_often_is_a_dead_letter_and_can_be_retried(fleet):
    async def use(app):
        queue, seen = app.queue("mail"), []
        await queue.put("x", id="x")
        for _ in range(3):
            item = await queue.claim(wait=10)
            seen.append(item.attempts)
            await item.nack(delay=0, reason="no luck")
        assert await queue.claim() is None
        (dead,) = await app.runs(items=True, status="dead")
        assert dead.reason == "no luck"
        await app.retry(dead.id)
        item = await queue.claim(wait=10)
        await item.ack()
        return seen, dead.id

    assert fleet.do(use) == ([1, 2, 3], "mail/x")


def test_consumers_in_several_processes_handle_every_item_once(fleet):
    fleet.start_many(3, "one_step", **CONSUME)
    ids = [f"i{n}" for n in range(200)]
    put(fleet, list(range(200)), ids)
    until(lambda: len(fleet.lines("after")) == 200, pause=0.02)
    until(
        lambda: size(fleet) == 0 and not fleet.ask("SELECT 1 FROM runs WHERE status = 'running'"), pause=0.1
    )
    assert sorted(line.run for line in fleet.lines()) == sorted(ids)
    assert len({line.pid for line in fleet.lines()}) > 1


def test_what_is_acked_and_what_is_claimed_next_are_one_commit(fleet, monkeypatch):
    """With a commit for each there would be twice as many, and a commit is what an item waits for. Only before a look for what else there
    is, twice a second, is what was acked written alone."""
    slots, count = 20, 2_000
    commits: list[set[type]] = []
    looks: list[None] = []

    async def use(app):
        queue, handled, over = app.queue("mail"), Counter(), asyncio.Event()
        store = app._open.store
        commit, look = store.commit, store.look
        monkeypatch.setattr(
            store, "commit", lambda verbs: commits.append(set(map(type, verbs))) or commit(verbs)
        )
        monkeypatch.setattr(store, "look", lambda *of: looks.append(None) or look(*of))

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
    assert len(alone) <= len(looks) + 1, "the last ones have nothing to go with"
    assert len(acked) >= count / slots


@contextmanager
def loop_goes_first():
    """No other thread is let in before the loop waits: else it is chance whether the writer's begins between an ack and a claim."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_an_item_whose_handler_always_fails_ends_as_a_dead_letter_and_the_hook_is_told(fleet):
    fleet.start_many(1, "one_step", **CONSUME)
    fleet.do(lambda app: app.queue("mail").put("failing", id="f"), max_attempts=2)
    until(lambda: fleet.hooks("dead"))
    assert fleet.hooks("dead") == ["mail/f"]
    assert [line.attempt for line in fleet.lines()] == [1, 2]
    ((reason,),) = fleet.ask("SELECT reason FROM runs WHERE id = 'mail/f'")
    assert "it cannot be done" in reason


def test_what_a_killed_consumer_had_in_hand_is_handled_by_another(fleet):
    victim = fleet.is_up(fleet.start("one_step", **CONSUME))
    put(fleet, ["gated"] * 5 + list(range(20)), [f"i{n}" for n in range(25)])
    until(lambda: len(fleet.lines(pid=victim.pid)) == 5)
    victim.kill()
    fleet.make("gate")
    heir = fleet.start("one_step", **CONSUME)
    until(lambda: len(fleet.lines("after")) == 25, pause=0.02)
    until(
        lambda: size(fleet) == 0 and not fleet.ask("SELECT 1 FROM runs WHERE status = 'running'"), pause=0.1
    )
    times = Counter(line.run for line in fleet.lines())
    assert times == {f"i{n}": 2 if n < 5 else 1 for n in range(25)}
    assert {line.attempt for line in fleet.lines(pid=heir.pid) if int(line.run[1:]) < 5} == {2}, (
        "a death is an attempt"
    )


def test_a_consumer_that_closes_gives_back_what_it_has_in_hand_uncharged(fleet):
    first = fleet.is_up(fleet.start("one_step", **CONSUME))
    put(fleet, ["gated"] * 5, [f"i{n}" for n in range(5)])
    until(lambda: len(fleet.lines(pid=first.pid)) == 5)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.errors()
    assert set(fleet.ask("SELECT status, deaths, failures FROM runs")) == {("queued", 0, 0)}
    fleet.make("gate")
    second = fleet.start("one_step", **CONSUME)
    until(lambda: len(fleet.lines("after")) == 5)
    assert {line.attempt for line in fleet.lines(pid=second.pid)} == {1}, "an interruption is no attempt"


@pytest.mark.parametrize("handler", ["handle_and_tidy", "handle_in_thread"])
def test_an_item_is_given_back_only_when_its_handler_has_ended(fleet, handler):
    options = {"consume": {"mail": handler}, "concurrency": 1}
    first = fleet.is_up(fleet.start("one_step", **options))
    put(fleet, ["x"], ["x"])
    until(lambda: fleet.lines(pid=first.pid))
    second = fleet.is_up(fleet.start("one_step", **options))
    fleet.make("stopping")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.errors()
    fleet.make("gate")
    until(lambda: handler == "handle_in_thread" or fleet.lines("after", second.pid))
    order = [(line.when, line.pid) for line in fleet.log.update()][:3]
    assert order[:2] == [("before", first.pid), ("after", first.pid)], (
        "nobody else has it before its handler has ended"
    )
    until(lambda: not fleet.ask("SELECT 1 FROM runs WHERE status <> 'done'"))
    assert fleet.lines(pid=second.pid) or handler == "handle_in_thread"


def test_an_item_whose_claim_was_given_up_is_not_lost(fleet):
    """Whoever asked for it may be cancelled just as it is claimed."""

    async def use(app):
        queue, lost = app.queue("mail"), 0
        await queue.put_many(range(100), ids=[f"i{n}" for n in range(100)])
        for number in range(100):
            asking = asyncio.create_task(queue.claim())
            await asyncio.sleep(0.0002 * (number % 20))
            asking.cancel()
            await asyncio.wait([asking])
            if asking.cancelled():
                lost += 1
            elif (item := asking.result()) is not None:
                await item.ack()
        left = 0
        while (item := await queue.claim(wait=5)) is not None:
            left += 1
            await item.ack()
            if await queue.size() == 0 and not fleet.ask("SELECT 1 FROM runs WHERE status = 'running'"):
                break
        return lost, left

    lost, left = fleet.do(use, poll=0.3)
    print(f"{lost} claims were given up, {left} items were left")
    assert lost
    assert fleet.ask("SELECT count(*) FROM runs WHERE status <> 'done'") == [(0,)]


def test_an_ack_by_a_worker_that_was_taken_for_dead_is_refused(fleet):
    """This process claims, and says nothing for longer than its lease; another handles the item."""

    async def use(app):
        queue = app.queue("mail")
        await queue.put("x", id="x")
        item = await queue.claim()
        app._house.worker._lease.stop()  # no sign of life any more, as in a process that is stopped
        heir = fleet.is_up(fleet.start("one_step", lease=2, **CONSUME))
        deadline = time.monotonic() + 25
        while not fleet.lines("after", heir.pid):
            assert time.monotonic() < deadline, heir.errors()
            await asyncio.sleep(0.02)
        with pytest.raises(LeaseLost):
            await item.ack()
        with pytest.raises(LeaseLost):
            await item.nack()

    fleet.do(use, lease=2)
    until(lambda: fleet.ask("SELECT status FROM runs WHERE id = 'mail/x'") in ([], [("done",)]))


def test_put_and_claim_are_refused_while_this_process_is_on_its_way_out(fleet):
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
            await asyncio.wait_for(entered.wait(), 10)
        await asyncio.gather(consuming, return_exceptions=True)

    asyncio.run(main())
    assert len(refused) == 2
    assert all("on its way out" in text for text in refused)
    assert size(fleet) == 1, "the item was given back, and nothing was put"


def test_a_full_queue_of_items_makes_wait_until_a_consumer_has_made_room(fleet):
    async def fill(app):
        queue = app.queue("mail")
        await queue.limit(depth=5)
        await queue.put_many(range(5))
        with pytest.raises(Backpressure):
            await queue.put("more")
        waiting = asyncio.create_task(queue.put("more", id="more", wait=20))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        fleet.start("one_step", **CONSUME)
        return await waiting

    assert fleet.do(fill) == "more"
    until(lambda: len(fleet.lines("after")) == 6)
