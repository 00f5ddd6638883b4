"""A worker with a damaged row is swept, and nothing else is affected."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from security_tools import Shell, rewrite

from outlast import Outlast
from outlast.store.address import store_at
from outlast.store.commands import (
    DAMAGED_SECONDS,
    Claim,
    RegisterWorker,
    Release,
    Renew,
    Submit,
    Sweep,
)
from outlast.store.postgres.address import parse
from outlast.store.protocol import Store
from outlast.store.redis.connection import parse as parse_redis
from support.stores import SHARED, a_place

LEASE = 30.0
NUMBERS = [(name, 1e308) for name in ("lease", "lease_until")] + [
    (name, math.inf) for name in ("lease", "lease_until", "renewed")
]
NO_NUMBERS = [(name, "no number") for name in ("lease", "lease_until", "renewed")]
LISTS = [(name, text) for name in ("queues", "workflows") for text in ("[", "{}", "")]


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def damage(place: str, name: str, value: Any, worker: str = "damaged") -> None:
    """As somebody does it who has the store and no Outlast."""
    if place.startswith("sqlite"):
        path = Path(place.removeprefix("sqlite:///"))
        rewrite(
            path,
            lambda db: db.execute(f"UPDATE workers SET {name} = ? WHERE id = ?", (value, worker)),
        )
    elif place.startswith("postgres"):
        known = parse(place)
        with psycopg.connect(autocommit=True, **known.options) as db:
            db.execute(
                f"UPDATE {known.schema}.workers SET {name} = %s WHERE id = %s", (value, worker)
            )
    else:
        known = parse_redis(place)
        with redis.Redis.from_url(place.partition("?")[0]) as db:
            assert db.hset(f"{known.prefix}worker:{worker}", name, str(value)) == 0


def swept(store: Store, clock: Clock, seconds: float) -> list[str]:
    """Who was found dead in this time, while one lives."""
    found: list[str] = []
    for _ in range(6):
        clock.now += seconds / 6
        store.commit([Renew("alive", LEASES["alive"])])
        if store.dead_workers():
            found += store.commit([Sweep()])[0].workers
    return found


LEASES = {"damaged": LEASE, "dead": LEASE, "alive": DAMAGED_SECONDS}
ENLISTED = [
    RegisterWorker(worker, "host", 1, lease, ("default",), ("flow",), 1)
    for worker, lease in LEASES.items()
]


@pytest.fixture(params=SHARED)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Store, Clock]]:
    """On each store, always: what is damaged is read by another program in each."""
    clock = Clock()
    with a_place(request, request.param, tmp_path) as place:
        store = store_at(place, clock=clock)
        store.open()
        store.commit(ENLISTED)
        yield place, store, clock
        store.close()


def numbers(place: str) -> list[tuple[str, Any]]:
    return NUMBERS if place.startswith("postgres") else NUMBERS + NO_NUMBERS


def test_damaged_worker_is_swept_eventually_and_others_as_usual(fleet) -> None:
    place, store, clock = fleet
    for id, (name, value) in enumerate(numbers(place)):
        store.commit([*ENLISTED, Submit(str(id), "flow", "{}", "t", "00" * 16, worker="damaged")])
        damage(place, name, value)
        found = swept(store, clock, 2 * LEASE)
        assert "dead" in found, (name, value)
        if "damaged" not in found:
            swept(store, clock, 1.5 * DAMAGED_SECONDS)
        assert store.run(str(id)).worker is None, (name, value)
        assert [row.id for row in store.workers()] == ["alive"]


def test_live_worker_repairs_its_row_and_is_not_swept(fleet) -> None:
    place, store, clock = fleet
    for name, value in numbers(place):
        damage(place, name, value)
        store.commit([Sweep()])
        clock.now += LEASE / 2
        store.commit([*(Renew(worker, lease) for worker, lease in LEASES.items()), Sweep()])
        assert {row.id: row.lease for row in store.workers()} == LEASES, (name, value)


def test_unclaimed_run_is_abandoned_despite_damaged_workers(fleet) -> None:
    place, store, clock = fleet
    damage(place, "draining", 1, "dead")  # so that it does not answer first
    for id, (name, value) in enumerate([*LISTS, *numbers(place)]):
        submit = Submit(str(id), "flow", "{}", "t", "00" * 16, worker="alive", abandon_after=5.0)
        row = store.commit([*ENLISTED, submit])[-1].row
        damage(place, name, value)
        store.commit([Release(row.pk, row.fence, "later", interrupted=False)])
        clock.now += 10
        (claimed,) = store.commit(
            [Claim("alive", str(id), queues=("default",), workflows=("flow",))]
        )[0]
        assert (claimed.id, claimed.undoing is None) == (str(id), False), (name, value)


def test_workers_are_listed_and_a_store_is_verified_whatever_is_in_their_rows(
    fleet, capsys
) -> None:
    place, store, _ = fleet
    store.commit([Submit("held", "flow", "{}", "t", "00" * 16, worker="damaged")])
    for name, value in (*LISTS, *numbers(place)):
        damage(place, name, value)
    for name in ("started", "pid", "concurrency") if not place.startswith("postgres") else ():
        damage(place, name, "no number")

    async def listed() -> set[str]:
        async with Outlast(place) as app:
            return {worker.id for worker in await app.workers()}

    assert asyncio.run(listed()) > set(LEASES)
    answer = Shell(place, capsys)("chaos", "verify", "--since", "1h", "--json")
    assert "looked_at" in json.loads(answer.out), answer.err
