"""The writer: one transaction for everything that waits, in order, and the truth for each waiter."""

import asyncio
import queue
import threading
import time

import pytest

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.record.writer import BATCH_CHARACTERS, InlineWriter, Writer
from outlast.store.protocol import BadValue, CommitUnknown
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import (
    FENCE,
    Enlist,
    Record,
    Refused,
    Release,
    Renew,
    Send,
    Settle,
    Submit,
    Submitted,
    Sweep,
    Swept,
)


def submit(id: str, args: str = "[]") -> Submit:
    return Submit(id, "flow", args, id, "seed")


class WatchedStore(SQLiteStore):
    """The real store in memory, with a gate before each commit and errors to raise at it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.calls: list[object] = []
        """The batch of each commit, or "recover"."""
        self.plan: list[Exception | None] = []
        """What to raise instead of committing; a CommitUnknown comes after it took effect."""
        self.recovery: list[Exception | None] = []

    def commit(self, verbs):
        self.arrived.put(None)
        assert self.gate.wait(30)
        self.calls.append(list(verbs))
        fault = self.plan.pop(0) if self.plan else None
        if fault is not None:
            if isinstance(fault, CommitUnknown):
                super().commit(verbs)
            raise fault
        return super().commit(verbs)

    def recover(self):
        self.calls.append("recover")
        fault = self.recovery.pop(0) if self.recovery else None
        if fault is not None:
            raise fault
        super().recover()


@pytest.fixture
def store():
    store = WatchedStore()
    store.open()
    yield store
    store.close()


def with_writer(store, scenario, *, patience=5.0, batch_max=1000, kind=Writer):
    """Execute `scenario(writer)` on a loop with a started writer; it is closed at the end."""

    async def main():
        writer = kind(store, asyncio.get_running_loop(), patience=patience, batch_max=batch_max)
        writer.start()
        try:
            return await asyncio.wait_for(scenario(writer), 30)
        finally:
            store.gate.set()
            await asyncio.to_thread(writer.close)

    return asyncio.run(main())


async def at_the_gate(store):
    """The writer has a batch in its hands and waits at the closed gate."""
    await asyncio.to_thread(store.arrived.get, True, 30)


def test_what_gathers_during_a_commit_is_written_in_one_transaction(store):
    async def scenario(writer):
        store.gate.clear()
        first = asyncio.ensure_future(writer.ask(submit("first")))
        await at_the_gate(store)
        rest = [asyncio.ensure_future(writer.ask(submit(f"r{n}"))) for n in range(500)]
        await asyncio.sleep(0)
        store.gate.set()
        outcomes = await asyncio.gather(first, *rest)
        assert all(isinstance(outcome, Submitted) and outcome.new for outcome in outcomes)
        assert [len(batch) for batch in store.calls] == [1, 500]
        assert (writer.batches, writer.verbs) == (2, 501)

    with_writer(store, scenario)


def test_a_batch_is_never_larger_than_its_limit(store):
    async def scenario(writer):
        await asyncio.gather(*(writer.ask(submit(f"r{n}")) for n in range(95)))
        assert max(len(batch) for batch in store.calls) <= 10
        assert sum(len(batch) for batch in store.calls) == 95

    with_writer(store, scenario, batch_max=10)


def test_long_texts_are_not_all_written_together(store):
    """Servers take no request of any size; but one verb alone may be as long as it is."""
    long = '"' + "x" * (BATCH_CHARACTERS // 3) + '"'

    async def scenario(writer):
        store.gate.clear()
        first = asyncio.ensure_future(writer.ask(submit("first")))
        await at_the_gate(store)
        rest = [writer.ask(submit(f"r{n}", long)) for n in range(4)]
        rest += [writer.ask(submit("whole", long * 4)), writer.ask(submit("last"))]
        rest = [asyncio.ensure_future(asked) for asked in rest]
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(first, *rest)
        assert [[verb.id for verb in batch] for batch in store.calls] == [
            ["first"],
            ["r0", "r1"],
            ["r2", "r3"],
            ["whole"],
            ["last"],
        ]

    with_writer(store, scenario)


@pytest.mark.parametrize("kind", [Writer, InlineWriter])
def test_verbs_are_written_and_told_in_the_order_they_were_put(store, kind):
    async def scenario(writer):
        told, over = [], asyncio.get_running_loop().create_future()

        def done(verb, outcome):
            told.append((verb.id, outcome.new))
            if len(told) == 300:
                over.set_result(None)

        for n in range(300):
            writer.put(submit(f"r{n}"), done)
            if n % 7 == 0:
                await asyncio.sleep(0)
        await over
        assert told == [(f"r{n}", True) for n in range(300)]
        assert [verb.id for batch in store.calls for verb in batch] == [f"r{n}" for n in range(300)]

    with_writer(store, scenario, batch_max=20, kind=kind)


def test_outcomes_are_told_on_the_loop_and_refusals_are_returned(store):
    async def scenario(writer):
        threads = []
        writer.put(submit("r"), lambda *_: threads.append(threading.current_thread()))
        assert await writer.ask(Record(1, 1, 99, "step", "k", 1.0)) == Refused(FENCE)
        assert threads == [threading.current_thread()]

    with_writer(store, scenario)


def test_a_sign_of_life_overtakes_and_the_verbs_of_runs_keep_their_order(store):
    async def scenario(writer):
        store.hold("w")
        await writer.ask(Enlist("w", "host", 1, 60.0))
        row = (await writer.ask(submit("r")._replace(worker="w"))).row
        store.calls.clear()
        store.gate.clear()
        blocked = asyncio.ensure_future(writer.ask(submit("blocked")))
        await at_the_gate(store)
        await at_the_gate(store)
        await at_the_gate(store)
        verbs = [
            Record(row.pk, 1, row.fence, "step", "1", 1.0),
            Record(row.pk, 2, row.fence, "step", "2", 1.0),
            Release(row.pk, row.fence, "drain"),
            submit("next"),
        ]
        asked = [asyncio.ensure_future(writer.ask(verb)) for verb in verbs]
        await asyncio.sleep(0)
        renewal = asyncio.ensure_future(asyncio.to_thread(writer.call, Renew("w", 60.0), 30))
        while not writer._urgent:
            await asyncio.sleep(0.001)
        store.gate.set()
        assert await renewal is None
        recorded, also_recorded, released, submitted = await asyncio.gather(*asked)
        assert (recorded, also_recorded, released, submitted.new) == (None, None, "queued", True)
        await blocked
        assert store.calls == [[submit("blocked")], [Renew("w", 60.0)], verbs]
        assert [entry.kind for entry in store.journal(row.pk)] == ["step", "step", "interruption"]

    with_writer(store, scenario)


def test_urgent_verbs_are_written_however_many_others_wait(store):
    async def scenario(writer):
        store.hold("w")
        await writer.ask(Enlist("w", "host", 1, 60.0))
        await at_the_gate(store)
        store.gate.clear()
        waiting = [asyncio.ensure_future(writer.ask(submit(f"r{n}"))) for n in range(200)]
        await at_the_gate(store)
        renewal = asyncio.ensure_future(asyncio.to_thread(writer.call, Renew("w", 60.0), 30))
        while not writer._urgent:
            await asyncio.sleep(0.001)
        store.gate.set()
        await renewal
        await asyncio.gather(*waiting)
        position = [Renew("w", 60.0) in batch for batch in store.calls].index(True)
        assert position == 2

    with_writer(store, scenario, batch_max=10)


def test_a_bad_value_fails_alone(store):
    async def scenario(writer):
        store.gate.clear()
        blocked = asyncio.ensure_future(writer.ask(submit("blocked")))
        await at_the_gate(store)
        verbs = [
            submit("a"),
            submit("bad", "\ud800"),
            submit("b"),
            Send("nobody", "m", "1", "1"),
            submit("c"),
        ]
        asked = [asyncio.ensure_future(writer.ask(verb)) for verb in verbs]
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


def test_an_unavailable_store_is_tried_again(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("locked")] * 3
        assert (await writer.ask(submit("r"))).new
        assert store.calls == [[submit("r")]] * 4

    with_writer(store, scenario)


def test_when_patience_ends_every_waiter_is_told_and_the_writer_goes_on(store):
    async def scenario(writer):
        store.gate.clear()
        store.plan = [None] + [StoreUnavailable("locked")] * 1000
        blocked = asyncio.ensure_future(writer.ask(submit("blocked")))
        await at_the_gate(store)
        asked = [asyncio.ensure_future(writer.ask(submit(f"r{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        store.gate.set()
        started = time.monotonic()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert "not known" not in str(outcomes[0])
        assert time.monotonic() - started < 5
        assert len(store.calls) > 3
        await blocked
        store.plan.clear()
        assert (await writer.ask(submit("later"))).new
        assert store.run("r0") is None

    with_writer(store, scenario, patience=0.3)


def test_a_waiter_in_a_thread_is_told_too(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("locked")] * 1000
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(writer.call, Sweep(), 30)

    with_writer(store, scenario, patience=0.1)


def test_a_call_that_gets_no_answer_in_time_says_so(store):
    async def scenario(writer):
        store.gate.clear()
        with pytest.raises(queue.Empty):
            await asyncio.to_thread(writer.call, Sweep(), 0.05)

    with_writer(store, scenario)


def test_an_unknown_commit_is_recovered_and_sent_again_as_it_was(store):
    async def scenario(writer):
        store.hold("w")
        await writer.ask(Enlist("w", "host", 1, 60.0))
        store.calls.clear()
        store.plan = [CommitUnknown("fsync")]
        outcome = await writer.ask(submit("r")._replace(worker="w"))
        assert outcome.new
        row = outcome.row
        store.plan = [CommitUnknown("fsync"), StoreUnavailable("still"), CommitUnknown("again")]
        assert await writer.ask(Record(row.pk, 1, row.fence, "step", "k", 1.0)) is None
        store.plan = [CommitUnknown("fsync")]
        store.recovery = [StoreUnavailable("a reader")] * 2
        assert await writer.ask(Settle(row.pk, row.fence, "done")) is None
        first, record, settle = (
            [submit("r")._replace(worker="w")],
            [Record(row.pk, 1, row.fence, "step", "k", 1.0)],
            [Settle(row.pk, row.fence, "done")],
        )
        assert store.calls == [
            first, "recover", first,
            record, "recover", record, "recover", record, "recover", record,
            settle, "recover", "recover", "recover", settle,
        ]  # fmt: skip
        assert len(store.journal(row.pk)) == 1
        assert store.run("r").status == "done"

    with_writer(store, scenario)


def test_an_outcome_that_stays_unknown_is_told_as_such(store):
    async def scenario(writer):
        store.plan = [CommitUnknown("fsync")]
        store.recovery = [StoreUnavailable("a reader")] * 1000
        with pytest.raises(StoreUnavailable, match="not known"):
            await writer.ask(submit("r"))

    with_writer(store, scenario, patience=0.2)


def test_a_broken_store_is_not_tried_again(store):
    async def scenario(writer):
        store.plan = [StoreBroken("damaged")]
        outcomes = await asyncio.gather(
            *(writer.ask(submit(f"r{n}")) for n in range(3)), return_exceptions=True
        )
        assert any(isinstance(outcome, StoreBroken) for outcome in outcomes)
        assert len(store.calls) <= 3

    with_writer(store, scenario)


def test_a_fault_of_the_store_itself_leaves_no_waiter_waiting(store):
    async def scenario(writer):
        store.plan = [ZeroDivisionError("a bug")]
        with pytest.raises(StoreUnavailable, match="ZeroDivisionError"):
            await writer.ask(submit("r"))
        assert (await writer.ask(submit("r"))).new

    with_writer(store, scenario)


def test_to_close_writes_what_waits(store):
    async def scenario(writer):
        store.gate.clear()
        for n in range(50):
            writer.put(submit(f"r{n}"), lambda *_: None)
        closing = asyncio.ensure_future(asyncio.to_thread(writer.close))
        store.gate.set()
        await closing
        assert all(store.run(f"r{n}") for n in range(50))

    with_writer(store, scenario)


def test_a_writer_that_closes_does_not_wait_for_a_store_that_is_gone(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("gone")] * 1000
        asked = asyncio.ensure_future(writer.ask(submit("r")))
        await at_the_gate(store)
        started = time.monotonic()
        await asyncio.to_thread(writer.close)
        assert time.monotonic() - started < 5
        with pytest.raises(StoreUnavailable):
            await asked

    with_writer(store, scenario, patience=600.0)


def test_a_loop_that_was_closed_does_not_stop_the_writer(store):
    loop = asyncio.new_event_loop()
    writer = Writer(store, loop, patience=1.0, batch_max=10)
    writer.start()
    store.gate.clear()
    writer.put(submit("r"), lambda *_: None)
    store.arrived.get(timeout=30)
    loop.close()
    store.gate.set()
    assert writer.call(Sweep(), 30) == Swept((), (), ())
    writer.close()
    assert store.run("r") is not None


def test_puts_from_many_threads_are_all_written(store):
    """The wake-up between `put` and an idle writer is lock-free: none may be lost."""

    async def scenario(writer):
        def ask_one_by_one(number):
            for turn in range(100):
                writer.call(submit(f"{number}-{turn}"), 30)

        await asyncio.gather(*(asyncio.to_thread(ask_one_by_one, number) for number in range(4)))
        for turn in range(500):
            await writer.ask(submit(f"loop-{turn}"))
        assert sum(len(batch) for batch in store.calls) == 900

    with_writer(store, scenario)
