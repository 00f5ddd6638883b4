"""Provide several threads that use a store at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from outlast.testing.conformance.harness import (
    WAIT_SECONDS,
    Contract,
    ManualClock,
    Opened,
    StoreDriver,
)

CROWD = 4
T = TypeVar("T")


class Crowd(Contract):
    @pytest.fixture
    def crowd(self, driver: StoreDriver, opened: Opened, clock: ManualClock) -> list[StoreDriver]:
        """Return one driver per thread, each on its own store if the store may be shared."""
        if not self.shared:
            return [driver] * CROWD
        return [driver, *(StoreDriver(opened(), clock) for _ in range(CROWD - 1))]

    def _together(self, work: Callable[[int], T]) -> list[T]:
        """Run `work` in one thread per driver, all starting at the same moment."""
        start = threading.Barrier(CROWD)

        def begin(number: int) -> T:
            start.wait(WAIT_SECONDS)
            return work(number)

        with ThreadPoolExecutor(CROWD) as pool:
            return list(pool.map(begin, range(CROWD)))
