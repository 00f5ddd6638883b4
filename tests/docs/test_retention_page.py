"""How long docs/retention.md says that things stay is how long they do."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

from outlast import Outlast, step, workflow
from outlast.settings import Settings
from outlast.store.commands import DRAINS_MAX, DURATIONS_MAX, SESSION_MEMORY

PAGE = (Path(__file__).parents[2] / "docs/retention.md").read_text()


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"| drain reports | there are {DRAINS_MAX:,} newer ones |" in PAGE
    assert f"| there are {DURATIONS_MAX} newer ones |" in PAGE
    assert f"`item_memory` ({Settings().item_memory:g} s)" in PAGE
    assert SESSION_MEMORY == 5 * 60
    assert "plus five minutes" in PAGE
    assert inspect.signature(Outlast.prune).parameters["batch"].default == 500
    assert "deletes 500 runs per transaction" in PAGE


@step
async def hundred(number: int) -> str:
    return "x" * 100


@workflow
async def twenty() -> int:
    return len([await hundred(number) for number in range(20)])


async def fill(store: str, runs: int) -> None:
    async with Outlast(store) as app:
        begun = [
            await app.start(twenty(), id=f"a-run-of-some-customer-{number:04d}")
            for number in range(runs)
        ]
        for run in begun:
            await run.result()


def test_a_run_takes_about_the_room_that_the_formula_gives(tmp_path) -> None:
    asyncio.run(fill(f"sqlite:///{tmp_path}/few.db", 10))
    asyncio.run(fill(f"sqlite:///{tmp_path}/many.db", 210))
    taken = ((tmp_path / "many.db").stat().st_size - (tmp_path / "few.db").stat().st_size) / 200
    [(head, entry)] = re.findall(
        r"SQLite: .* x \((\d+) \+ steps x \((\d+) \+ bytes of a result\)\)", PAGE
    )
    said = int(head) + 20 * (int(entry) + 100)
    assert said / 1.4 < taken < said * 1.4
