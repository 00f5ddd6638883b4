"""Damaged numbers of a run or queue do not affect other runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from security_tools import rewrite

from outlast.api.info import RunInfo
from outlast.store.address import store_at
from outlast.store.commands import (
    Claim,
    DeregisterWorker,
    Drain,
    RegisterWorker,
    Renew,
    Retry,
    SetQueueLimits,
    Settle,
    Submit,
    Sweep,
)
from outlast.store.protocol import Store
from outlast.store.redis.connection import parse
from outlast.store.rows import RunQuery
from outlast.testing.conformance import ManualClock
from support.stores import a_place

OF_RUNS = (
    "priority", "created", "started", "due", "timeout", "deadline", "interrupted", "deaths", "interruptions", "failed_at", "lives", "mark",
    "deaths_in_a_row", "interruptions_in_a_row", "failures", "attempts_max", "interruptions_max", "abandon_after", "ended", "fence",
)  # fmt: skip
OF_QUEUES = ("queued", "running", "depth_max", "concurrency_max")


@pytest.fixture(params=["sqlite", "redis"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, Store, ManualClock]]:
    clock = ManualClock()
    with a_place(request, request.param, tmp_path) as place:
        store = store_at(place, clock=clock)
        store.open()
        store.commit([RegisterWorker("w", "host", 1, 3600.0)])
        yield place, store, clock
        store.close()


def damage(place: str, table: str, key: str, name: str) -> None:
    """As somebody does it who has the store and no Outlast."""
    if place.startswith("sqlite"):
        column = {"runs": "pk", "queues": "name"}[table]
        statement = f"UPDATE {table} SET {name} = 'none' WHERE {column} = ?"
        rewrite(Path(place.removeprefix("sqlite:///")), lambda db: db.execute(statement, (key,)))
    else:
        with redis.Redis.from_url(place.partition("?")[0]) as db:
            db.hset(f"{parse(place).prefix}{table[:-1]}:{key}", name, "none")


def submit(id: str, queue: str = "default") -> Submit:
    return Submit(id, "flow", "{}", id, "00" * 16, queue=queue, depth_max=1_000)


@pytest.mark.parametrize("held", [False, True], ids=["queued", "held"])
def test_damaged_run_does_not_block_claiming_sweeping_and_listing_others(opened, held) -> None:
    place, store, clock = opened
    for name in OF_RUNS:
        store.commit([submit(f"damaged {name}"), submit(f"good {name}")])
        if held:
            store.commit(
                [
                    RegisterWorker("dead", "host", 1, 30.0),
                    Claim("dead", name, ids=(f"damaged {name}",)),
                ]
            )
        damage(place, "runs", str(store.run(f"damaged {name}").pk), name)
        for _ in range(4 if held else 0):
            clock.now += 12
            store.commit([Renew("w", 3600.0), Sweep()])
        assert [row.id for row in store.workers()] == ["w"], name
        claim = Claim("w", name, limit=10, queues=("default",), workflows=("flow",))
        rows, again = store.commit([claim])[0], store.commit([claim])[0]
        assert f"good {name}" in [row.id for row in rows], name
        assert "none" not in {value for row in (*rows, *again) for value in row}, name
        store.commit(
            [Settle(row.pk, row.fence, "done", "1") for row in rows if row.id.startswith("good")]
        )
    listed = [RunInfo.of(row).id for row in store.runs(RunQuery(limit=1_000))]
    assert len(listed) == 2 * len(OF_RUNS)


def test_damaged_run_is_returned_with_usable_numbers(opened) -> None:
    """What is no number was there for ever: the run was not taken up."""
    place, store, _ = opened
    for name in OF_RUNS:
        store.commit([submit(name)])
        damage(place, "runs", str(store.run(name).pk), name)
        found = store.run(name)
        assert "none" not in found, name
        assert not found.is_suspect
        assert found.due <= store.now()


def test_a_run_whose_time_out_is_no_number_has_none(opened) -> None:
    """And not one that is over as soon as the run begins."""
    place, store, _ = opened
    store.commit([submit("queued")._replace(timeout=60.0), submit("failed")._replace(timeout=60.0)])
    (held,) = store.commit([Claim("w", "a", ids=("failed",))])[0]
    assert held.deadline is not None
    store.commit([Settle(held.pk, held.fence, "failed", error="{}", failed_at=1)])
    for id in ("queued", "failed"):
        damage(place, "runs", str(store.run(id).pk), "timeout")
    store.commit([Retry("failed", "again")])
    rows = store.commit([Claim("w", "b", limit=10, queues=("default",), workflows=("flow",))])[0]
    assert {(row.id, row.deadline) for row in rows} == {("queued", None), ("failed", None)}


def test_run_with_a_damaged_drain_time_does_not_block_other_claims(opened) -> None:
    place, store, _ = opened
    store.commit([submit("damaged"), submit("good"), RegisterWorker("leaving", "host", 1, 30.0)])
    (left,) = store.commit([Claim("leaving", "a", ids=("damaged",))])[0]
    store.commit([Drain("leaving", "it is told to", (left.fence,)), DeregisterWorker("leaving")])
    damage(place, "runs", str(store.run("damaged").pk), "left_at")
    rows = store.commit([Claim("w", "b", limit=10, queues=("default",), workflows=("flow",))])[0]
    assert {row.id for row in rows} == {"damaged", "good"}


def test_damaged_queue_does_not_block_other_queues_or_submission(
    opened,
) -> None:
    place, store, _ = opened
    for name in OF_QUEUES:
        store.commit([submit(f"damaged {name}", name), SetQueueLimits(name, 100, 100)])
        damage(place, "queues", name, name)
        assert store.depth(name) == (0 if name == "queued" else 1), name
        store.commit([submit(f"good {name}"), submit(f"another {name}", name)])
        rows = store.commit(
            [Claim("w", name, limit=10, queues=(name, "default"), workflows=("flow",))]
        )[0]
        assert {row.id for row in rows} == {f"damaged {name}", f"good {name}", f"another {name}"}, (
            name
        )
        store.queues()
