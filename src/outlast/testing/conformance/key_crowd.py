"""Check limits per key while several threads claim and settle at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count

from outlast.store.commands import Claim, SetQueueLimits, Submit, SubmitMany
from outlast.store.rows import RunRow
from outlast.testing.conformance.crowd import Crowd
from outlast.testing.conformance.harness import EVERYTHING, StoreDriver

KEYS = 4
RUNS = 120


class KeyCrowdContract(Crowd):
    def test_a_key_never_executes_more_than_it_may_over_all_workers(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Count from outside what is held. Two workflows, so that a key has two lanes."""
        most_per_key = 2
        driver.one(
            SetQueueLimits(
                "default", None, None, key_concurrency_max=most_per_key, keep_key_concurrency=False
            )
        )
        workers = [mine.register_worker(f"w{number}") for number, mine in enumerate(crowd)]
        held: Counter[str | None] = Counter()
        most: Counter[str | None] = Counter()
        counting = threading.Lock()
        left = RUNS

        def begin(rows: list[RunRow]) -> None:
            with counting:
                for row in rows:
                    held[row.key] += 1
                    most[row.key] = max(most[row.key], held[row.key])

        def end(mine: StoreDriver, row: RunRow) -> None:
            nonlocal left
            with counting:
                held[row.key] -= 1
                left -= 1
            mine.settle(row)

        def work(number: int) -> None:
            mine, mine_held = crowd[number], list[RunRow]()
            share = RUNS // len(crowd)
            runs = tuple(
                Submit(f"{number}-{n}", f"flow-{n % 2}", "[]", "t", "s", key=f"k{n % KEYS}")
                for n in range(share)
            )
            for turn in count():
                if turn * 5 < share:
                    mine.one(SubmitMany(runs[turn * 5 : turn * 5 + 5]))
                rows = mine.one(Claim(workers[number], f"{number}-{turn}", limit=3))
                begin(rows)
                mine_held += rows
                while len(mine_held) > (turn % 3):
                    end(mine, mine_held.pop(0))
                if left <= 0:
                    return

        self._together(work)
        assert set(most.values()) == {most_per_key}
        assert {row.status for row in driver.store.runs(EVERYTHING)} == {"done"}
