"""Generated programs of effects, units and children do nothing twice though they crash."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from teller import bank, fail, hold, lock, pay, unlock, work

from outlast import compensate_with, sleep, workflow
from outlast.api.unit import unit
from support.crash_points import crash_at

LONG = "OUTLAST_TEST_KILLS" in os.environ
PROGRAMS = 200 if LONG else 8
WRITES, ACTS = (6, 3) if LONG else (3, 2)
"""At how many of them a program crashes."""
Program = list[Any]


class Chance:
    """Writes a program. Every effect has a name of its own."""

    def __init__(self, seed: int) -> None:
        self._chance, self._names = random.Random(seed), 0

    def name(self) -> str:
        self._names += 1
        return f"{self._names}"

    def block(self, depth: int) -> Program:
        return [self._statement(depth) for _ in range(self._chance.randint(1, 3))]

    def _statement(self, depth: int) -> Any:
        simple = ["pay", "hold", "work", "sleep", "register", "fail"]
        nested = ["unit", "unit", "gather", "child", "try"] if depth else []
        kind = self._chance.choices(
            [*simple, *nested], [4, 4, 1, 1, 1, 1 + (depth < 2), *[1.5] * len(nested)]
        )[0]
        if kind in ("unit", "child", "try"):
            return [kind, self.block(depth - 1)]
        if kind == "gather":
            return [kind, [self.block(depth - 1) for _ in range(2)]]
        return [kind, self.name()]


async def execute(program: Program) -> None:
    for kind, of in program:
        if kind == "pay":
            await pay(of)
        elif kind == "hold":
            await hold(of)
        elif kind == "work":
            await work(of)
        elif kind == "sleep":
            await sleep(float(of))
        elif kind == "register":
            await lock(of)
            await compensate_with(unlock, of)
        elif kind == "fail":
            await fail(of)
        elif kind == "unit":
            try:
                async with unit("unit"):
                    await execute(of)
            except ValueError:
                await work("rolled back")
        elif kind == "try":
            try:
                await execute(of)
            except ValueError:
                await work("caught")
        elif kind == "gather":
            tasks = [asyncio.create_task(execute(one)) for one in of]
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for end in ends:
                if isinstance(end, BaseException):
                    raise end
        elif kind == "child":
            await generated(of)


@workflow
async def generated(program: Program) -> str:
    await execute(program)
    return "done"


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_generated_programs_do_nothing_twice_despite_crashes(seed):
    chance = random.Random(seed)
    call = generated(Chance(seed).block(3))
    undisturbed: list[Counter[str]] = []

    def look() -> None:
        counts = Counter(bank.order)
        for what, count in counts.items():
            assert count == 1, f"{what} {count} times: {bank.log}"
            assert what[0] == "+" or f"+{what[1:]}" in counts, (
                f"{what}, which was not done: {bank.log}"
            )
        undisturbed.append(counts)
        assert counts == undisturbed[0], f"{bank.log}, without a crash it was {undisturbed[0]}"

    def some(count: int) -> Callable[[int], list[int]]:
        return lambda last: sorted(chance.sample(range(1, last + 1), min(count, last)))

    report = crash_at(
        call,
        fresh=bank.__init__,
        check=look,
        seed=chance.choice([None, seed]),
        every_life=chance.random() < 0.3,
        writes=some(WRITES),
        acts=some(ACTS),
    )
    if report.error is not None:
        left = {
            what
            for what in undisturbed[0]
            if what[0] == "+" and f"-{what[1:]}" not in undisturbed[0]
        }
        assert left == set()
