"""A run taken from its worker is evicted and records nothing stale."""

import asyncio

import pytest

from outlast import Evicted, current, step, workflow
from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.execution_starter import ExecutionStarter
from outlast.engine.store_client import StoreClient
from outlast.store.commands import Claim, Record, RegisterWorker, Sweep
from outlast.store.writer.group_commit_writer import GroupCommitWriter

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
    other.acquire_liveness("thief")
    other.commit([RegisterWorker("thief", "elsewhere", 1, 1e6)])
    other._db.execute("DELETE FROM workers WHERE id = ?", (app._open.worker.id,))
    swept = other.commit([Sweep()])[0]
    assert swept.runs == (id,)
    row = other.commit([Claim("thief", "t", ids=(id,))])[0][0]
    return row.fence


def test_life_whose_run_was_taken_over_is_evicted_and_records_nothing(world):
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


def test_run_continues_in_the_same_process_after_its_worker_was_removed(file_world):
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


@pytest.fixture
def slow_to_come_back(monkeypatch):
    """A worker that was taken for dead has no other id for a while: the store takes its time."""
    ask = GroupCommitWriter.execute

    async def asked(self, command):
        if isinstance(command, RegisterWorker):
            await asyncio.sleep(2)
        return await ask(self, command)

    monkeypatch.setattr(GroupCommitWriter, "execute", asked)


def test_run_does_not_start_under_a_claim_lost_while_its_journal_is_read(
    world, monkeypatch, slow_to_come_back
):
    read, pasts = StoreClient.read, ExecutionStarter._pasts

    async def reads(self, fn, *args):
        if getattr(fn, "__func__", None) is pasts:
            await asyncio.sleep(1)
        return await read(self, fn, *args)

    async def first(app) -> None:
        await app.start(report(), id="run")
        await asyncio.sleep(10)

    async def second(app) -> None:
        worker = app._open.worker
        lost = worker.id
        await app.start(report(), id="run")
        await asyncio.sleep(0.5)
        assert [row.worker for row in app._open.in_flight.held()] == [lost]
        other = world.open()
        other._db.execute("DELETE FROM workers WHERE id = ?", (lost,))
        other.commit([Sweep()])
        worker._report_lost(lost)
        await asyncio.sleep(1)
        assert (worker.id, app._open.in_flight.executions, done) == (lost, {}, [])
        await asyncio.sleep(50)
        assert (
            [execution.row.worker for execution in app._open.in_flight.executions.values()]
            == [worker.id]
            != [lost]
        )
        assert done == ["slow 1"]

    world.do(first)
    done.clear()
    monkeypatch.setattr(StoreClient, "read", reads)
    world.do(second)


@pytest.mark.parametrize("by_hand", [False, True])
def test_item_is_not_handled_under_a_claim_of_a_lost_worker(
    world, monkeypatch, slow_to_come_back, by_hand
):
    claim = WorkAcquirer.claim

    async def claims(self, command, **options):
        rows = await claim(self, command, **options)
        if rows and not seen:
            seen.append("lost")
            self._registration._report_lost(command.worker)
        return rows

    async def handle(item) -> None:
        done.append(item._row.worker)

    async def main(app) -> None:
        lost = app._open.worker.id
        queue = app.queue("q")
        await queue.put(1, id="item")
        if by_hand:
            item = await queue.claim(wait=20)
            await handle(item)
            await item.ack()
        else:
            consumer = asyncio.create_task(queue.consume(handle))
            await asyncio.sleep(20)
            consumer.cancel()
        assert done == [app._open.worker.id] != [lost]

    monkeypatch.setattr(WorkAcquirer, "claim", claims)
    world.do(main)


@pytest.mark.parametrize("ends", ["left", "cancelled"])
def test_worker_being_registered_again_at_close_is_removed(world, monkeypatch, ends):
    """Commit late: the app was left or the caller was cancelled while the store took its time."""
    ask = GroupCommitWriter.execute

    async def asked(self, command):
        outcome = await ask(self, command)
        if isinstance(command, RegisterWorker):
            seen.append(command.worker)
            await asyncio.sleep(5)
        return outcome

    async def main(app) -> asyncio.Task[None]:
        worker, store = app._open.worker, world.open()
        store._db.execute("DELETE FROM workers WHERE id = ?", (worker.id,))
        monkeypatch.setattr(GroupCommitWriter, "execute", asked)
        enlisting = asyncio.create_task(worker.register(instead_of=worker.id))
        await asyncio.sleep(1)
        assert [row.id for row in store.workers()] == seen
        if ends == "cancelled":
            enlisting.cancel()
            await asyncio.sleep(
                20
            )  # it is registered all the same, for those who had not been cancelled
            assert [row.id for row in store.workers()] == [worker.id] == seen[1:]
        return enlisting

    assert world.do(main).done()
    assert world.store.workers() == []
