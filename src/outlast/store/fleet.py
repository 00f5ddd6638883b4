"""Who is alive, and who of them would take a run."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from outlast.store.commands import ITEM
from outlast.store.protocol import Store
from outlast.store.rows import RunRow, SessionQuery, WorkerRow

STALLS = "stalls"
"""The space of sessions in which workers keep what blocked their event loops: a session per worker, a
field per step."""
STALLS_KEPT_SECONDS = 86_400.0


class Stall(NamedTuple):
    """A step that blocked the event loop of a worker."""

    worker: str
    step: str
    """Its name, or that of the workflow whose own code it was."""
    times: int
    seconds: float
    """How long the last time."""
    at: float
    line: str


def stalls_of(store: Store) -> tuple[Stall, ...]:
    """Return what workers have on record of the last day, the latest first. What is damaged is left out."""
    found = []
    for row in store.sessions(SessionQuery(STALLS, limit=1_000)):
        for step, text in row.fields.items():
            try:
                said = json.loads(text)
                found.append(
                    Stall(
                        str(row.id), step, int(said["count"]), float(said["seconds"]), float(said["at"]), str(said["line"])
                    )
                )  # fmt: skip
            except (KeyError, TypeError, ValueError, RecursionError):
                continue
    return tuple(sorted(found, key=lambda stall: -stall.at))


class Fleet(NamedTuple):
    """The workers of a store at one moment."""

    workers: list[WorkerRow]
    dead: frozenset[str]
    """Those that seem dead: the next sweep decides."""
    now: float
    stalls: tuple[Stall, ...] = ()
    """What blocked their event loops; only where it was asked for."""

    @classmethod
    def with_stalls(cls, store: Store) -> Fleet:
        return cls.of(store)._replace(stalls=stalls_of(store))

    @classmethod
    def of(cls, store: Store) -> Fleet:
        # The dead first: one that comes in between is alive, one that is swept in between is not shown at all.
        dead = frozenset(store.dead_workers())
        return cls(store.workers(), dead, store.now())

    def state(self, worker: WorkerRow) -> str:
        if worker.id in self.dead:
            return "dead"
        return "draining" if worker.draining else "alive"

    def known(self, queue: str) -> tuple[str, ...]:
        """Workflows that somebody takes from a queue."""
        return tuple(
            sorted(
                {name for worker in self._claiming(queue) for name in names_of(worker.workflows)}
            )
        )

    def takes(self, row: RunRow) -> bool:
        """Whether somebody takes the run once it is ready. Who consumes an item is not on record."""
        return row.workflow != ITEM and row.workflow in self.known(row.queue)

    def _claiming(self, queue: str) -> list[WorkerRow]:
        return [
            worker
            for worker in self.workers
            if self.state(worker) == "alive" and queue in names_of(worker.queues)
        ]

    @property
    def struck_off(self) -> tuple[str, ...]:
        """Who is not enlisted any more, and still has runs to its name."""
        enlisted = {worker.id for worker in self.workers}
        return tuple(sorted(map(str, self.dead - enlisted)))  # whatever a file has there


def names_of(text: str) -> list[str]:
    """Names that a worker has on record, as a JSON list; none where that is damaged."""
    try:
        names: Any = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
