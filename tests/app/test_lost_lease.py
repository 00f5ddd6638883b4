"""A run that was taken from its worker: evicted once, and nothing stale is recorded."""

import asyncio

import pytest

from outlast import Evicted, current, step, workflow
from outlast.store.verbs import Claim, Enlist, Record, Sweep

done: list[str] = []
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()
    seen.clear()


@step(retries=3)
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(f"{label} {current().attempt}")
    await asyncio.sleep(seconds)
    return label


@workflow
async def report() -> list[str]:
    try:
        return [await work("a"), await work("slow", 100)]
    except BaseException as error:
        seen.append(type(error))
        raise


def steal(world, app, id="run") -> int:
    """Another worker sweeps and claims, as if the first one had been taken for dead. Its fence."""
    other = world.open()
    other.hold("thief")
    other.commit([Enlist("thief", "elsewhere", 1, 1e6)])
    other._db.execute("DELETE FROM workers WHERE id = ?", (app._house.worker.id,))
    swept = other.commit([Sweep()])[0]
    assert swept.runs == (id,)
    row = other.commit([Claim("thief", "t", ids=(id,))])[0][0]
    return row.fence


def test_a_life_whose_run_was_taken_is_evicted_once_and_records_nothing_stale(world):
    async def main(app) -> None:
        await app.start(report(), id="run")
        await asyncio.sleep(10)
        fence = steal(world, app)
        await asyncio.sleep(200)  # the slow step ends here: its record is refused
        assert seen == [Evicted]
        row = app.store.run("run")
        assert (row.worker, row.fence) == ("thief", fence)
        assert [entry.kind for entry in app.store.journal(row.pk)] == ["step", "death"]

    world.do(main)


def test_a_stale_result_never_reaches_the_journal_of_the_new_life(world):
    async def main(app) -> list[str]:
        run = await app.start(report(), id="run")
        await asyncio.sleep(10)
        fence = steal(world, app)
        row = app.store.run("run")
        app.store.commit(
            [
                Record(
                    row.pk,
                    3,
                    fence,
                    "step",
                    "work#2",
                    app.store.now(),
                    args='{"label":"slow","seconds":100}',
                    value='"by the thief"',
                )
            ]
        )
        await asyncio.sleep(200)
        app.store._db.execute("DELETE FROM workers WHERE id = 'thief'")
        app.store.commit([Sweep()])
        return await run.result(timeout=1000)

    assert world.do(main) == ["a", "by the thief"]
    values = [entry.value for entry in world.journal() if entry.kind == "step"]
    assert values == ['"a"', '"by the thief"']


def test_a_run_whose_worker_was_struck_off_goes_on_in_the_same_process(file_world):
    async def main(app) -> list[str]:
        run = await app.start(report(), id="run")
        await asyncio.sleep(10)
        other = file_world.open()
        other._db.execute("DELETE FROM workers")
        other.commit([Sweep()])
        other.close()
        return await run.result(timeout=1000)

    assert file_world.do(main) == ["a", "slow"]
    assert file_world.row().deaths == 1
    assert [k for k in file_world.kinds() if k == "step"] == ["step", "step"]
