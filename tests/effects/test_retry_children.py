"""A child is retried with its parent, and alone only while the parent waits for it."""

import asyncio

import pytest
from outside import book, outside, put

from outlast import WrongStatus, receive, step, workflow
from outlast.store.commands import RegisterWorker, Settle, Submit

broken: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken[:] = ["child", "parent"]


@step
async def maybe(label: str) -> None:
    if label in broken:
        raise ValueError(label)


@workflow
async def child(label: str) -> str:
    await book(label)
    await maybe("child")
    return label


@workflow
async def parent() -> str:
    await put("a")
    said = await child("c")
    await maybe("parent")
    return said


@workflow
async def grandparent() -> str:
    return await parent()


def fails(world, call, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        world.run(call)


def refused(world, id: str) -> str:
    before = (world.row(id), list(outside.log))
    with pytest.raises(WrongStatus) as error:
        world.do(lambda app: app.retry(id))
    assert (world.row(id), outside.log) == before
    return str(error.value)


def test_child_that_failed_is_not_retried_after_its_parent_failed(world):
    fails(world, parent(), "child")
    assert outside.log == ["+a", "+c", "-c", "-a"]
    said = refused(world, "run/child#1")
    assert "a child of run 'run', which is failed" in said
    assert "`outlast retry run`" in said


def test_child_that_its_parent_has_undone_is_not_retried_alone(world):
    broken.remove("child")
    fails(world, parent(), "parent")
    assert world.row("run/child#1").status == "cancelled"
    assert "`outlast retry run`" in refused(world, "run/child#1")


def test_retry_names_the_topmost_ended_run(world):
    fails(world, grandparent(), "child")
    said = refused(world, "run/parent#1/child#1")
    assert "a child of run 'run/parent#1'" in said
    assert "`outlast retry run`" in said


def test_retry_of_the_parent_retries_the_child(world):
    fails(world, parent(), "child")
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(parent()) == "c"
    assert outside.log[4:] == ["+a", "+c"]
    assert world.row("run/child#1").status == "done"


def test_child_whose_end_its_parent_has_recorded_is_not_retried_alone(world):
    @workflow
    async def tolerant() -> str:
        try:
            return await child("c")
        except ValueError:
            return await receive("go on")

    async def until_it_waits(app):
        await app.start(tolerant(), id="run")
        await asyncio.sleep(30)

    world.do(until_it_waits)
    said = refused(world, "run/child#1")
    assert "which has recorded the child's end and continued without it" in said
    assert "`outlast retry run`" in said


def test_child_of_a_parent_that_is_done_is_not_retried(world):
    @workflow
    async def tolerant() -> str:
        try:
            return await child("c")
        except ValueError:
            return "without it"

    assert world.run(tolerant()) == "without it"
    assert "which is done" in refused(world, "run/child#1")


def test_child_is_retried_while_its_parent_is_parked_without_a_record_of_its_end(world):
    store = world.store
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    above, below = store.commit([
        Submit("run", "parent", "[[],{}]", "t", "s", worker="w"),
        Submit("run/child#1", "child", "[[],{}]", "t", "s", parent="run", worker="w"),
    ])  # fmt: skip
    store.commit([
        Settle(below.row.pk, below.row.fence, "failed"), Settle(above.row.pk, above.row.fence, "parked"),
    ])  # fmt: skip
    world.do(lambda app: app.retry("run/child#1"))
    assert world.row("run/child#1").status == "queued"
