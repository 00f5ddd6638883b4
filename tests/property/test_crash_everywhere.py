"""Crash typical workflows before and after every single write."""

import asyncio
import os
from pathlib import Path

import pytest

from outlast import current, now, receive, sleep, step, uuid, workflow
from outlast.testing import Broke, crash_everywhere, crash_processes

LONG_FORM = "OUTLAST_TEST_KILLS" in os.environ
STORES = ["memory:", "sqlite"] if LONG_FORM else ["memory:"]


class Refused(Exception):
    pass


@step
async def work(label: str, seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    return label


@step(retries=3, backoff=2.0)
async def flaky(label: str) -> str:
    if current().attempt < 3:
        raise Refused(label)
    return f"{label} at attempt {current().attempt}"


@step
async def fails(label: str) -> str:
    raise Refused(label)


@step
async def outer(label: str) -> str:
    return "+".join([await work(f"{label}{n}") for n in range(2)])


@workflow
async def loops(count: int) -> list[str]:
    """An agent's loop: decide by what came back."""
    seen: list[str] = []
    while len(seen) < count:
        seen.append(await work(f"turn {len(seen)}"))
        if len(seen) == 2:
            seen.append(await outer("o"))
    return seen


@workflow
async def gathers() -> list:
    first = await asyncio.gather(
        work("a", 3), work("b", 1), flaky("c"), fails("d"), return_exceptions=True
    )
    named = [item if isinstance(item, str) else type(item).__name__ for item in first]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(str(n), n)) for n in range(3)]
    return [*named, *[task.result() for task in tasks]]


@workflow
async def times() -> list:
    start = now()
    await sleep(10)
    try:
        async with asyncio.timeout(5):
            await work("too slow", 1000)
    except TimeoutError:
        pass
    return [(now() - start).total_seconds() >= 15, len(str(uuid())), await work("after")]


@workflow
async def talks() -> list[str]:
    first = await receive("word", str)
    both = await asyncio.gather(receive("word", str), work("meanwhile"))
    try:
        await receive("never", str, timeout=1)
    except TimeoutError:
        both.append("timed out")
    return [first, *both]


async def world_talks(app) -> None:
    for n in range(2):
        await app.send("crash", "word", f"word {n}", message_id=f"m{n}")


@workflow
async def child(label: str) -> str:
    return await work(label) + await work(f"{label}'")


@workflow
async def parents() -> list[str]:
    first = await child("x")
    return [first, *await asyncio.gather(child("y"), child("z"), work("w"))]


@workflow
async def ends_badly() -> None:
    try:
        await work("a")
        await fails("b")
    finally:
        await work("cleanup")


@workflow
async def everything() -> list:
    return [
        await loops.fn(3),
        *await asyncio.gather(gathers.fn(), times.fn()),
        await child("c"),
    ]


CALLS = {
    "loops": loops(4),
    "gathers": gathers(),
    "times": times(),
    "parents": parents(),
    "ends_badly": ends_badly(),
    "everything": everything(),
}
NAMES = [
    pytest.param(name, marks=pytest.mark.extended) if name == "everything" else name
    for name in CALLS
]
"""`everything` repeats the others side by side."""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", NAMES)
def test_crash_at_any_write_changes_nothing(name, store):
    writes = None if store == "memory:" else range(1, 20, 3)
    report = crash_everywhere(CALLS[name], store=store, writes=writes)
    assert report.crashes >= 6
    assert report.error == ("Refused: b" if name == "ends_badly" else None)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", NAMES)
def test_crash_in_every_life_changes_nothing(name, store):
    """Crashes begin at the 5th write: a process that dies at its claim makes no progress."""
    writes = [8] if store != "memory:" else [5, 8, 13] if LONG_FORM else [5, 9]
    crash_everywhere(CALLS[name], store=store, writes=writes, every_life=True)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("every_life", [False, True])
def test_messages_are_neither_lost_nor_received_twice(store, every_life):
    report = crash_everywhere(
        talks(),
        store=store,
        outside=world_talks,
        writes=range(5, 16, 1 if store == "memory:" and (LONG_FORM or not every_life) else 4),
        every_life=every_life,
    )
    assert sorted(report.result[:2]) == ["word 0", "word 1"]


@pytest.mark.parametrize("seed", range(10 if LONG_FORM else 3))
def test_ready_events_may_come_in_any_order(seed):
    report = crash_everywhere(gathers(), seed=seed, writes=[4, 7, 9])
    assert report.crashes == 6


def test_only_steps_in_progress_are_repeated():
    report = crash_everywhere(loops(4))
    assert report.redone, "the crash before a step's write must have redone it"
    assert {key.split()[1] for key in report.redone} <= {f"work#{n}" for n in range(1, 6)} | {
        "outer#1"
    }
    # A sequential workflow has one step under way: each crash redoes one at the most.
    assert len(report.redone) <= report.crashes


def test_workflow_that_is_not_deterministic_is_found():
    import random as chance

    @workflow
    async def chancy() -> str:
        await work(str(chance.random()))
        return await work("x")

    with pytest.raises(Broke):
        crash_everywhere(chancy())


def test_result_that_depends_on_the_number_of_lives_is_found():
    lives = []

    @workflow
    async def counts() -> int:
        lives.append(1)
        await work("x")
        return len(lives)

    with pytest.raises(Broke):
        crash_everywhere(counts())


def test_report_names_the_step_at_whose_write_the_crash_came():
    told = []

    @step
    async def tell(label: str) -> None:
        told.append(label)

    @workflow
    async def tells() -> None:
        await tell("a")
        await tell("b")

    def once() -> None:
        assert told.count("b") == 1, "b was told twice"

    with pytest.raises(
        Broke, match=r"after a crash before write \d+ \(step tell#2\): b was told twice"
    ):
        crash_everywhere(tells(), fresh=told.clear, check=once)


def test_workflow_without_a_call_raises_type_error():
    with pytest.raises(TypeError, match="takes a call of a workflow"):
        crash_everywhere(gathers)


PROGRAM = """
import asyncio
from outlast import current, step, workflow

@step(retries=2, backoff=0.01)
async def work(label: str) -> str:
    if label == "flaky" and current().attempt == 1:
        raise OSError("once")
    print("worked on", label)
    return label.upper()

@workflow
async def child(label: str) -> str:
    return await work(label)

@workflow
async def small(label: str) -> list:
    first = await work(label)
    await asyncio.sleep(0.01)
    return [first, *await asyncio.gather(work("flaky"), child("c"))]
"""


def test_run_of_a_process_killed_at_a_write_is_ended_by_the_next(tmp_path: Path):
    file = tmp_path / "small_program.py"
    file.write_text(PROGRAM)
    report = crash_processes(
        f"{file}:small", ['"tides"'], folder=tmp_path, every=3 if LONG_FORM else 9
    )
    assert report.result == ["TIDES", "FLAKY", "C"]
    assert report.crashes >= 2
