"""Values that the script could not use are refused before it is called."""

import asyncio
import math
from uuid import uuid4

import pytest
import redis

from outlast.errors import StoreBroken
from outlast.store.address import store_at
from outlast.store.commands import (
    Claim,
    DeregisterWorker,
    Record,
    RegisterWorker,
    Release,
    Renew,
    Submit,
    SubmitMany,
    Sweep,
)
from outlast.store.protocol import BadValue
from outlast.store.writer.inline_writer import InlineWriter

ODD = "\ud800"


@pytest.fixture
def store(redis_server):
    store = store_at(f"{redis_server.url}?prefix={uuid4().hex}")
    store.open()
    yield store
    store.close()


@pytest.fixture
def client(redis_server):
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


@pytest.mark.parametrize(
    "command",
    [
        Submit("a", "flow", "[]", "t", "s", priority=2**52 + 1),
        Submit("a", "flow", "[]", "t", "s", priority=-(2**52) - 1),
        SubmitMany((Submit("a", "flow", "[]", "t", "s", priority=2**53),)),
        Submit("a", "flow", "[]", "t", "s", priority=True),
        Submit("a", "flow", "[]", "t", "s", timeout=True),
        Record(True, 1, 1, "step", "k", 1.0),
        Record(1, True, 1, "step", "k", 1.0),
        RegisterWorker("", "host", 1, 30.0),
        RegisterWorker(ODD, "host", 1, 30.0),
        RegisterWorker("w", "host", 1, 30.0, (ODD,)),
        RegisterWorker("w", "host", 1, 30.0, (), (ODD,)),
        RegisterWorker("w", "host", 1, 30.0, "default"),
        Renew(ODD, 30.0),
        Claim("w", ODD),
    ],
)
def test_unusable_value_is_a_bad_value(store, command):
    with pytest.raises(BadValue):
        store.commit([command])
    assert store.workers() == []
    assert store.run("a") is None


def test_extreme_priorities_keep_their_order(store):
    store.commit([RegisterWorker("w", "host", 1, 30.0)])
    for priority in (0, -(2**52), 2**52, -1, 1):
        store.commit([Submit(f"{priority}", "flow", "[]", "t", "s", priority=priority)])
    (rows,) = store.commit([Claim("w", "c", limit=9)])
    assert [row.priority for row in rows] == [2**52, 1, 0, -1, -(2**52)]


@pytest.mark.parametrize("row", ["run:1", "worker:w"])
def test_damaged_number_is_one_error_that_names_the_row(store, client, row):
    """Redis has no schema that would keep it out."""
    store.commit(
        [
            RegisterWorker("w", "host", 1, 30.0),
            Submit("run", "flow", "[]", "t", "00" * 16, worker="w"),
        ]
    )
    fields = ("interruptions", "created") if row == "run:1" else ("lease", "started")
    name = "run" if row == "run:1" else "'w'"
    for field in fields:
        before = client.hget(f"{store._address.prefix}{row}", field)
        client.hset(f"{store._address.prefix}{row}", field, "none")
        with pytest.raises(StoreBroken, match=name):
            store.run("run") if row == "run:1" else store.workers()
        if before is None:
            client.hdel(f"{store._address.prefix}{row}", field)
        else:
            client.hset(f"{store._address.prefix}{row}", field, before)
    client.hset(f"{store._address.prefix}{row}", fields[0], "none")
    with pytest.raises(StoreBroken, match=f"{row.replace(':', ' ')}: {fields[0]} is not a number"):
        store.commit([DeregisterWorker("w") if row == "run:1" else Sweep()])


@pytest.mark.parametrize("field", ["created", "due", "timeout", "attempts_max", "interrupted"])
def test_damaged_run_does_not_keep_a_claim_from_the_others(store, client, caplog, field):
    """The claim is committed by then: an error would leave its runs with a live worker."""
    store.commit([RegisterWorker("w", "host", 1, 30.0)])
    for id in ("damaged", "good"):
        store.commit([Submit(id, "flow", "[]", id, "00" * 16)])
    client.hset(f"{store._address.prefix}run:1", field, "none")
    (rows,) = store.commit([Claim("w", "c", limit=9)])
    assert [row.id for row in rows] == ["good"]
    assert store.commit([Claim("w", "c", limit=9)]) == [rows]
    assert "run 'damaged': a number in it is damaged" in caplog.text


def test_damaged_run_does_not_keep_its_batch_from_being_written(store, client):
    """A worker that tidies up releases the run in the same batch in which others record."""
    store.commit([RegisterWorker("w", "host", 1, 30.0)])
    submits = [Submit(id, "flow", "[]", id, "00" * 16, worker="w") for id in ("damaged", "good")]
    damaged, good = (outcome.row for outcome in store.commit(submits))
    client.hset(f"{store._address.prefix}run:{damaged.pk}", "created", "none")
    outcomes = {}

    async def main():
        writer = InlineWriter(store, asyncio.get_running_loop(), patience=5.0, batch_max=100)
        writer.start()
        for command in (
            Record(good.pk, 1, good.fence, "step", "k", 1.0),
            Release(damaged.pk, damaged.fence, "not held"),
        ):
            writer.enqueue(command, lambda done, outcome: outcomes.update({done.run: outcome}))
        writer.close()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert outcomes[good.pk] is None
    assert isinstance(outcomes[damaged.pk], StoreBroken)
    assert [entry.key for entry in store.journal(good.pk)] == ["k"]


def test_worker_with_an_invalid_name_does_not_break_the_listeners(store):
    store.acquire_liveness("w")
    with pytest.raises(BadValue):
        store.acquire_liveness(ODD)
    assert store._liveness.held == {"w"}


def test_bad_value_is_refused_after_good_values_of_its_type(store):
    """Types that were found good are remembered; what they do not say is looked at each time."""
    good = Record(1, 1, 1, "step", "k", 1.0, asked=True)
    flag = good._replace(asked=1)
    store.commit([good, flag, good, flag])
    for bad in (
        flag._replace(asked=2), good._replace(at=math.nan), good._replace(at=math.inf), good._replace(seq=2**53 + 1),
        good._replace(run=-(2**53) - 1), good._replace(key=None), good._replace(seq=1.0), good._replace(key=ODD),
    ):  # fmt: skip
        with pytest.raises(BadValue):
            store.commit([bad])
    store.commit([good._replace(at=1e300)])
