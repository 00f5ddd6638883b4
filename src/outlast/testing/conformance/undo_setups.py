"""Prepare runs that are compensated, for the contracts of Undo and UndoChild."""

from __future__ import annotations

import json
from typing import Any

from outlast.store.commands import (
    Undo,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import StoreDriver

VERDICT = (
    '{"status":"failed","value":null,"error":"{\\"type\\":\\"E\\"}","reason":"r","failed_at":3}'
)


def run_with_effect(
    driver: StoreDriver, id: str = "r", kind: str = "intent", **fields: Any
) -> RunRow:
    """Return a held run whose only entry is of this kind. By default it is an effect's intent."""
    row = driver.held(id, **fields)
    assert driver.record(row, 1, kind=kind) is None
    return row


def undo(driver: StoreDriver, row: RunRow, verdict: str = VERDICT) -> RunRow:
    """Ask for the compensation of a held run and return its row."""
    assert driver.one(Undo(row.pk, row.fence, verdict)) is None
    return driver.row(row.id)


def dead_letter_to_undo(driver: StoreDriver, id: str = "r") -> RunRow:
    """Return a dead letter that is not compensated yet."""
    undo(driver, run_with_effect(driver, id, attempts_max=1))
    driver.take(id, "grave")
    assert id in driver.lease_over().dead
    return driver.row(id)


AT_REST = ["queued", "waiting", "parked", "dead"]
"""The statuses of a run that has not ended and that no worker holds."""


def child_at_rest(driver: StoreDriver, status: str, kind: str = "intent") -> RunRow:
    """Return a child that has started and that no worker holds.

    The row is that of its last execution, whose fence is void.
    """
    row = run_with_effect(driver, "child", kind, parent="parent", attempts_max=1, timeout=500.0)
    if status == "queued":
        driver.release(row)
    elif status == "waiting":
        driver.wait(row, waits=("mail",))
    elif status == "parked":
        driver.settle(row, "parked")
    else:
        driver.release(row)
        driver.die(driver.take("child"))
    return row


def queue_counts(driver: StoreDriver, queue: str = "default") -> tuple[int, int]:
    """Return how many runs of a queue are queued and running."""
    (found,) = (one for one in driver.store.queues() if one.name == queue)
    return found.queued, found.running


def verdict_of(driver: StoreDriver, row: RunRow) -> dict[str, Any]:
    """Return a run's verdict, and check that row and journal agree on it."""
    last = driver.store.journal(row.pk)[-1]
    assert (last.kind, last.value, last.at) == (
        "undoing",
        driver.row(row.id).undoing,
        driver.clock.now,
    )
    verdict: dict[str, Any] = json.loads(last.value or "")
    return verdict
