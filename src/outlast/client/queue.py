"""Define `Queue`, a queue of plain work items behind the HTTP API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outlast.client.actions import key_fields
from outlast.client.transport import Transport, segment
from outlast.codec import plain_json
from outlast.codec.identifiers import new_ids
from outlast.engine.queue_limits import UNCHANGED


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
        key: str | None = None,
    ) -> str:
        """Put an item and return its id. It is durable when this returns.

        The id is an idempotency key until some time after its ack. Raise Backpressure if the queue
        is full and has no room within `wait` seconds, and Conflict if the id is in the queue with
        another payload. Items with different keys take turns, and the limits per key of `limit`
        apply.
        """
        ids = None if id is None else [id]
        keys = None if key is None else [key]
        names = await self.put_many(
            [payload], ids=ids, priority=priority, delay=delay, wait=wait, keys=keys
        )
        return names[0]

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        keys: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Put several items in one commit, all of them or none, and return their ids.

        `keys` has the key of each item, or None for an item without one.
        """
        found = list(payloads)
        for payload in found:
            plain_json.check(payload)
        names = new_ids(len(found)) if ids is None else list(ids)
        if len(names) != len(found):
            raise ValueError(
                f"pass one id for each payload: there are {len(found)} payloads and "
                f"{len(names)} ids."
            )
        items = [
            {"payload": payload, "id": name, **key}
            for payload, name, key in zip(found, names, key_fields(len(found), keys), strict=True)
        ]

        async def put(seconds: float) -> Any:
            body = {"items": items, "priority": priority, "delay": delay, "wait": seconds}
            return await self._transport.act("POST", self._path("items"), body, wait=seconds)

        await self._transport.wait_for_slot(wait, put)
        return names

    async def size(self) -> int:
        """Return how many items and runs are ready.

        Delayed ones and those in progress do not count.
        """
        size: int = (await self._transport.get(self._path()))["size"]
        return size

    async def limit(
        self,
        *,
        depth: int | None = UNCHANGED,
        concurrency: int | None = UNCHANGED,
        per_key_concurrency: int | None = UNCHANGED,
        per_key_rate: str | None = UNCHANGED,
    ) -> None:
        """Set the queue's own limits, across all processes.

        `depth` limits how many may be queued, `concurrency` how many may execute at once. Of the
        runs with the same key, at most `per_key_concurrency` execute at once, and at most the
        `per_key_rate`, such as "100/1m", start in any such period. None removes a limit. A limit
        that is not named stays.
        """
        given = {
            "depth": depth,
            "concurrency": concurrency,
            "per_key_concurrency": per_key_concurrency,
            "per_key_rate": per_key_rate,
        }
        body = {name: value for name, value in given.items() if value is not UNCHANGED}
        await self._transport.act("PUT", self._path("limits"), body)

    async def pause(self) -> None:
        """Stop claiming from the queue, in all processes. Runs already executing continue."""
        await self._transport.act("PUT", self._path("limits"), {"paused": True})

    async def resume(self) -> None:
        """Claim from the queue again, within its limits."""
        await self._transport.act("PUT", self._path("limits"), {"paused": False})

    def _path(self, *more: str) -> str:
        return "/v1/queues/" + "/".join(map(segment, (self.name, *more)))

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"
