"""The writer commits everything that waits in one transaction, in order."""

import asyncio
import threading

import pytest
from writer_tools import WatchedStore, at_the_gate, submit, with_writer

from outlast.errors import StoreUnavailable
from outlast.store.commands import (
    FENCE,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    Send,
    Submitted,
    Sweep,
)
from outlast.store.protocol import BadValue
from outlast.store.writer.group_commit_writer import GroupCommitWriter
from outlast.store.writer.inline_writer import InlineWriter
from outlast.store.writer.write_queue import BATCH_CHARACTERS
from support.waiting import WAIT_SECONDS, wait_until_async


@pytest.fixture
def store():
    store = WatchedStore()
    store.open()
    yield store
    store.close()


def test_commands_queued_during_a_commit_are_written_in_one_transaction(store):
    async def scenario(writer):
        store.gate.clear()
        first = asyncio.ensure_future(writer.execute(submit("first")))
        await at_the_gate(store)
        rest = [asyncio.ensure_future(writer.execute(submit(f"r{n}"))) for n in range(500)]
        await asyncio.sleep(0)
        store.gate.set()
        outcomes = await asyncio.gather(first, *rest)
        assert all(isinstance(outcome, Submitted) and outcome.new for outcome in outcomes)
        assert [len(batch) for batch in store.calls] == [1, 500]
        assert (writer.batches, writer.commands) == (2, 501)

    with_writer(store, scenario)


def test_batch_is_never_larger_than_its_limit(store):
    async def scenario(writer):
        await asyncio.gather(*(writer.execute(submit(f"r{n}")) for n in range(95)))
        assert max(len(batch) for batch in store.calls) <= 10
        assert sum(len(batch) for batch in store.calls) == 95

    with_writer(store, scenario, batch_max=10)


def test_long_texts_are_not_all_written_together(store):
    """Servers take no request of any size; but one command alone may be as long as it is."""
    long = '"' + "x" * (BATCH_CHARACTERS // 3) + '"'

    async def scenario(writer):
        store.gate.clear()
        first = asyncio.ensure_future(writer.execute(submit("first")))
        await at_the_gate(store)
        rest = [writer.execute(submit(f"r{n}", long)) for n in range(4)]
        rest += [writer.execute(submit("whole", long * 4)), writer.execute(submit("last"))]
        rest = [asyncio.ensure_future(asked) for asked in rest]
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(first, *rest)
        assert [[command.id for command in batch] for batch in store.calls] == [
            ["first"],
            ["r0", "r1"],
            ["r2", "r3"],
            ["whole"],
            ["last"],
        ]

    with_writer(store, scenario)


@pytest.mark.parametrize("kind", [GroupCommitWriter, InlineWriter])
def test_commands_are_written_and_answered_in_order(store, kind):
    async def scenario(writer):
        told, over = [], asyncio.get_running_loop().create_future()

        def done(command, outcome):
            told.append((command.id, outcome.new))
            if len(told) == 300:
                over.set_result(None)

        for n in range(300):
            writer.enqueue(submit(f"r{n}"), done)
            if n % 7 == 0:
                await asyncio.sleep(0)
        await over
        assert told == [(f"r{n}", True) for n in range(300)]
        assert [command.id for batch in store.calls for command in batch] == [
            f"r{n}" for n in range(300)
        ]

    with_writer(store, scenario, batch_max=20, kind=kind)


def test_outcomes_arrive_on_the_loop_and_refusals_are_returned(store):
    async def scenario(writer):
        threads = []
        writer.enqueue(submit("r"), lambda *_: threads.append(threading.current_thread()))
        assert await writer.execute(Record(1, 1, 99, "step", "k", 1.0)) == Refused(FENCE)
        assert threads == [threading.current_thread()]

    with_writer(store, scenario)


def test_renewal_overtakes_commands_of_runs_which_keep_their_order(store):
    async def scenario(writer):
        store.acquire_liveness("w")
        await writer.execute(RegisterWorker("w", "host", 1, 60.0))
        row = (await writer.execute(submit("r")._replace(worker="w"))).row
        store.calls.clear()
        store.gate.clear()
        blocked = asyncio.ensure_future(writer.execute(submit("blocked")))
        await at_the_gate(store)
        await at_the_gate(store)
        await at_the_gate(store)
        commands = [
            Record(row.pk, 1, row.fence, "step", "1", 1.0),
            Record(row.pk, 2, row.fence, "step", "2", 1.0),
            Release(row.pk, row.fence, "drain"),
            submit("next"),
        ]
        asked = [asyncio.ensure_future(writer.execute(command)) for command in commands]
        await asyncio.sleep(0)
        renewal = asyncio.ensure_future(
            asyncio.to_thread(writer.execute_urgent, Renew("w", 60.0), WAIT_SECONDS)
        )
        await wait_until_async(lambda: writer._urgent)
        store.gate.set()
        assert await renewal is None
        recorded, also_recorded, released, submitted = await asyncio.gather(*asked)
        assert (recorded, also_recorded, released, submitted.new) == (None, None, "queued", True)
        await blocked
        assert store.calls == [[submit("blocked")], [Renew("w", 60.0)], commands]
        assert [entry.kind for entry in store.journal(row.pk)] == ["step", "step", "interruption"]

    with_writer(store, scenario)


def test_urgent_commands_are_written_however_many_others_wait(store):
    async def scenario(writer):
        store.acquire_liveness("w")
        await writer.execute(RegisterWorker("w", "host", 1, 60.0))
        await at_the_gate(store)
        store.gate.clear()
        waiting = [asyncio.ensure_future(writer.execute(submit(f"r{n}"))) for n in range(200)]
        await at_the_gate(store)
        renewal = asyncio.ensure_future(
            asyncio.to_thread(writer.execute_urgent, Renew("w", 60.0), WAIT_SECONDS)
        )
        await wait_until_async(lambda: writer._urgent)
        store.gate.set()
        await renewal
        await asyncio.gather(*waiting)
        position = [Renew("w", 60.0) in batch for batch in store.calls].index(True)
        assert position == 2

    with_writer(store, scenario, batch_max=10)


def test_bad_value_fails_alone(store):
    async def scenario(writer):
        store.gate.clear()
        blocked = asyncio.ensure_future(writer.execute(submit("blocked")))
        await at_the_gate(store)
        commands = [
            submit("a"),
            submit("bad", "\ud800"),
            submit("b"),
            Send("nobody", "m", "1", "1"),
            submit("c"),
        ]
        asked = [asyncio.ensure_future(writer.execute(command)) for command in commands]
        await asyncio.sleep(0)
        store.gate.set()
        a, bad, b, nobody, c = await asyncio.gather(*asked, return_exceptions=True)
        assert a.new
        assert b.new
        assert c.new
        assert isinstance(bad, BadValue)
        assert isinstance(nobody, Refused)
        await blocked
        assert store.run("bad") is None
        assert [len(batch) for batch in store.calls] == [1, 5, 1, 1, 1, 1, 1]

    with_writer(store, scenario)


def test_call_without_an_answer_times_out(store):
    async def scenario(writer):
        store.gate.clear()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.05 s"):
            await asyncio.to_thread(writer.execute_urgent, Sweep(), 0.05)

    with_writer(store, scenario)


def test_puts_from_many_threads_are_all_written(store):
    """The wake-up between `put` and an idle writer is lock-free: none may be lost."""

    async def scenario(writer):
        def ask_one_by_one(number):
            for turn in range(100):
                writer.execute_urgent(submit(f"{number}-{turn}"), WAIT_SECONDS)

        await asyncio.gather(*(asyncio.to_thread(ask_one_by_one, number) for number in range(4)))
        for turn in range(500):
            await writer.execute(submit(f"loop-{turn}"))
        assert sum(len(batch) for batch in store.calls) == 900

    with_writer(store, scenario)
