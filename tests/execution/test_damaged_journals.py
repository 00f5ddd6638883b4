"""A run with an unreadable journal is parked with a reason."""

import asyncio

import pytest

from outlast import RunParked, receive, step, workflow
from outlast.errors.reasons import of_run


@step
async def one() -> int:
    return 1


@step
async def fails() -> None:
    raise ValueError("x")


@workflow
async def adds(n: int) -> int:
    total = n + await one()
    try:
        await fails()
    except ValueError:
        total += await receive("go", int)
    return total


DAMAGES = {
    "a value that is no JSON": "UPDATE entries SET value = '{' WHERE kind = 'step' AND value IS NOT NULL",
    "an error without a type": "UPDATE entries SET error = '{}' WHERE error IS NOT NULL",
    "an error that is a list": "UPDATE entries SET error = '[]' WHERE error IS NOT NULL",
    "an attempt that is due at no time": (
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) VALUES (1, 99, 1, 'attempt', 'one#1', 1, 'soon')"
    ),
    "a message that was never sent": "UPDATE entries SET kind = 'message', value = '77' WHERE seq = 1",
    "arguments that are no JSON": "UPDATE runs SET args = '{'",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_run_whose_record_cannot_be_read_is_parked(world, damage):
    async def begin(app) -> None:
        await app.start(adds(1), id="run")
        await asyncio.sleep(10)

    world.do(begin)
    world.store._db.execute(damage)
    world.restart()
    call = adds(1)
    call.args = world.row().args
    with pytest.raises(RunParked):
        world.run(call)
    row = world.row()
    assert (row.status, row.worker) == ("parked", None)
    explained = "Diverged" if damage == DAMAGES["arguments that are no JSON"] else "unreadable"
    assert of_run(row.status, row.reason) == explained  # nobody is sent to look for changed code
    assert world.executed == {}


def test_parked_run_resumes_after_its_journal_is_repaired(world):
    async def begin(app) -> None:
        await app.start(adds(1), id="run")
        await asyncio.sleep(10)

    async def again(app) -> int:
        await app.resume("run")
        await app.send("run", "go", 5)
        return await (await app.start(adds(1), id="run")).result(timeout=1000)

    world.do(begin)
    world.store._db.execute("UPDATE entries SET value = '{' WHERE key = 'one#1'")
    world.restart()
    with pytest.raises(RunParked):
        world.run(adds(1))
    world.store._db.execute("UPDATE entries SET value = '1' WHERE key = 'one#1'")
    world.restart()
    assert world.do(again) == 7
    assert world.executed == {}
