"""Read which workers are alive, and which runs they would take."""

from __future__ import annotations

import json
from typing import NamedTuple

from outlast.store.commands import ITEM
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow, RunRow, WorkerRow
from outlast.store.session_rows import SessionQuery

STALLS = "stalls"
"""The session space in which workers record what blocked their event loops: one session per worker,
one field per step.
"""
STALLS_KEPT_SECONDS = 86_400.0


class Stall(NamedTuple):
    """A step that blocked the event loop of a worker."""

    worker: str
    step: str
    """The step's name, or the workflow's if its own code blocked the loop."""
    times: int
    seconds: float
    """How long it blocked the last time."""
    at: float
    line: str


def stalls_of(store: Store) -> tuple[Stall, ...]:
    """Return the stalls recorded in the last day, the latest first. Damaged ones are left out."""
    found = []
    for row in store.sessions(SessionQuery(STALLS, limit=1_000, values=True)):
        for step, text in row.fields.items():
            try:
                recorded = json.loads(text)
                found.append(
                    Stall(
                        str(row.id),
                        step,
                        int(recorded["count"]),
                        float(recorded["seconds"]),
                        float(recorded["at"]),
                        str(recorded["line"]),
                    )
                )
            except (KeyError, TypeError, ValueError, RecursionError):
                continue
    return tuple(sorted(found, key=lambda stall: -stall.at))


class Fleet(NamedTuple):
    """The workers of a store at one moment."""

    workers: list[WorkerRow]
    dead: frozenset[str]
    """The workers that seem dead. The next sweep decides."""
    now: float
    stalls: tuple[Stall, ...] = ()
    """What blocked their event loops. Only `with_stalls` reads it."""
    paused_queues: tuple[QueueRow, ...] = ()
    """The queues that are paused, or limited to no runs at a time. The command line adds them."""
    paused_workflows: frozenset[str] = frozenset()

    @classmethod
    def with_stalls(cls, store: Store) -> Fleet:
        return cls.of(store)._replace(stalls=stalls_of(store))

    @classmethod
    def of(cls, store: Store) -> Fleet:
        # Read the dead first: a worker that registers in between is alive, and a worker that is
        # swept in between is not shown at all.
        dead = frozenset(store.dead_workers())
        return cls(store.workers(), dead, store.now())

    def state(self, worker: WorkerRow) -> str:
        if worker.id in self.dead:
            return "dead"
        return "draining" if worker.draining else "alive"

    def known(self, queue: str) -> tuple[str, ...]:
        """Return the workflows that live workers take from a queue."""
        return tuple(
            sorted(
                {name for worker in self._claiming(queue) for name in names_of(worker.workflows)}
            )
        )

    def claims_from(self, queue: str) -> bool:
        """Return whether a live worker claims from a queue."""
        return bool(self._claiming(queue))

    def takes(self, row: RunRow) -> bool:
        """Return whether a live worker takes the run once it is ready.

        For an item this is always False, because the store does not record its consumers.
        """
        return row.workflow != ITEM and row.workflow in self.known(row.queue)

    def _claiming(self, queue: str) -> list[WorkerRow]:
        return [
            worker
            for worker in self.workers
            if self.state(worker) == "alive" and queue in names_of(worker.queues)
        ]

    @property
    def deregistered(self) -> tuple[str, ...]:
        """Return the workers that are no longer registered but still hold runs."""
        registered = {worker.id for worker in self.workers}
        return tuple(sorted(self.dead - registered))


class FleetQueues(NamedTuple):
    """The queues of a store at one moment, and what the workers make of them."""

    rows: list[QueueRow]
    unknown: dict[str, tuple[str, ...]]
    """Workflows with ready runs that no live worker of the queue knows, by queue."""
    unclaimed: frozenset[str]
    """Queues from which no live worker claims."""
    now: float

    @classmethod
    def of(cls, store: Store) -> FleetQueues:
        fleet = Fleet.of(store)
        rows = store.queues()
        known = {row.name: fleet.known(row.name) for row in rows}
        unknown = {queue: store.peek((queue,), names).unknown for queue, names in known.items()}
        return cls(
            rows,
            {queue: names for queue, names in unknown.items() if names},
            frozenset(row.name for row in rows if not fleet.claims_from(row.name)),
            fleet.now,
        )


def names_of(text: str) -> list[str]:
    """Return the names in a JSON list recorded by a worker."""
    names: list[str] = json.loads(text)
    return names
