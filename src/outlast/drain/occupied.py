"""What a drain waits for beside the steps of runs: units, items of `each`, calls of `map`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Occupation(NamedTuple):
    kind: str
    """unit, each or map."""
    name: str
    since: float
    """On the monotonic clock."""


class Occupied:
    """May be entered and left in any thread."""

    def __init__(self, left: Callable[[], None]) -> None:
        self._left = left
        """Called, from any thread, when something was left."""
        self._under_way: dict[object, Occupation] = {}

    def enter(self, kind: str, name: str) -> object:
        """Something begins that a drain must not cut. The token is for `leave`."""
        token = object()
        self._under_way[token] = Occupation(kind, name, time.monotonic())
        return token

    def leave(self, token: object) -> None:
        """It has ended. A repeat is harmless."""
        if self._under_way.pop(token, None) is not None:
            self._left()

    def __iter__(self) -> Iterator[Occupation]:
        return iter(list(self._under_way.values()))

    def __len__(self) -> int:
        return len(self._under_way)
