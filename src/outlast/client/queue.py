"""Define `Queue`, a queue of plain work items behind the HTTP API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outlast.api.queue import UNCHANGED
from outlast.client.transport import Transport, segment
from outlast.codec import plain_json
from outlast.codec.identifiers import new_ids


class Queue:
    """A queue of plain items: `await client.queue("emails").put({"to": "ann"})`.

    Items are claimed and consumed where the store is open, because a claim is a lease.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    async def put(
        self,
        payload: Any,
        *,
        id: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
    ) -> str:
        """Put an item and return its id. It is durable when this returns.

        The id is an idempotency key until some time after its ack. Raise Backpressure if the queue
        is full and has no room within `wait` seconds, and Conflict if the id is in the queue with
        another payload.
        """
        ids = None if id is None else [id]
        names = await self.put_many([payload], ids=ids, priority=priority, delay=delay, wait=wait)
        return names[0]

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
    ) -> list[str]:
        """Put several items in one commit, all of them or none, and return their ids."""
        found = list(payloads)
        for payload in found:
            plain_json.check(payload)
        names = new_ids(len(found)) if ids is None else list(ids)
        if len(names) != len(found):
            raise ValueError(f"{len(found)} payloads need as many ids, not {len(names)}.")
        items = [
            {"payload": payload, "id": name} for payload, name in zip(found, names, strict=True)
        ]

        async def put(seconds: float) -> Any:
            body = {"items": items, "priority": priority, "delay": delay, "wait": seconds}
            return await self._transport.act("POST", self._path("items"), body, wait=seconds)

        await self._transport.with_room(wait, put)
        return names

    async def size(self) -> int:
        """Return how many items and runs are ready.

        Delayed ones and those in progress do not count.
        """
        size: int = (await self._transport.get(self._path()))["size"]
        return size

    async def limit(
        self, *, depth: int | None = UNCHANGED, concurrency: int | None = UNCHANGED
    ) -> None:
        """Set the queue's own limits, across all processes.

        `depth` limits how many may be queued, `concurrency` how many may execute at once.
        `concurrency=0` pauses the queue: nothing more is claimed from it. None removes a limit. A
        limit that is not named stays.
        """
        given = {"depth": depth, "concurrency": concurrency}
        body = {name: value for name, value in given.items() if value is not UNCHANGED}
        await self._transport.act("PUT", self._path("limits"), body)

    def _path(self, *more: str) -> str:
        return "/v1/queues/" + "/".join(map(segment, (self.name, *more)))

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"
