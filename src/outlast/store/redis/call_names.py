"""Name the calls of one writer, so that a lost call can be voided.

When the connection is lost in the middle of a call, the server may still execute the call later.
The server then finds its name among the void ones and refuses it.
"""

from __future__ import annotations

import time
from itertools import count
from uuid import uuid4

from outlast.store.redis.connection import RedisConnection

VOID_SECONDS = 86_400.0
"""How long the server remembers that a lost call must not be executed."""


class CallNames:
    """The names of one writer's calls: the current one, and those of lost calls."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        """Names of lost calls that may still reach the server."""
        self.begin()

    def begin(self) -> None:
        """Begin as another writer. The calls that the last one lost stay lost."""
        self.origin = uuid4().hex
        """Identifies the writer."""
        self._names = (f"{self.origin}-{number}" for number in count(1))
        self.current = next(self._names)
        """The name of the next call. Calls share it until one of them is lost."""

    def renew(self) -> None:
        """Use another name from now on."""
        self.current = next(self._names)

    def give_up(self) -> None:
        """Note that a call is lost."""
        self.lost.append(self.current)
        self.renew()

    def void_lost(self, line: RedisConnection, prefix: str) -> None:
        """Void the lost calls in the server. Raise Lost if the connection is lost again."""
        key = f"{prefix}void"
        for name in tuple(self.lost):
            now = time.time()
            line.call("ZADD", key, now, name)
            line.call("ZREMRANGEBYSCORE", key, "-inf", now - VOID_SECONDS)
            self.lost.remove(name)
