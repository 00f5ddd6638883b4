"""Undoing continues in the next process, also when code has changed."""

import asyncio
import json

import pytest
from outside import book, fail, outside, put, take, unbook
from undo_tools import LONG, decide, dies_in_the_act, one_act, parked, trip

from outlast import (
    KEY,
    RunCancelled,
    WrongStatus,
    effect,
    receive,
    sleep,
    workflow,
)
from outlast.execution import compensation
from outlast.store.commands import Release


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


# -- one way, in whatever process


def test_run_being_undone_cannot_be_cancelled(world):
    outside.broken.add("-b")

    async def main(app):
        await app.start(trip(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)
        with pytest.raises(WrongStatus, match="being compensated"):
            await app.cancel("run")
        with pytest.raises(WrongStatus):
            await app.retry("run")

    world.do(main)
    parked(world)
    with pytest.raises(WrongStatus, match="being compensated"):
        world.do(lambda app: app.cancel("run"))


@pytest.mark.parametrize("reached", ["-c", "-b", "-a"])
def test_undo_continues_in_the_next_process_after_a_death(world, reached):
    world.die(trip(), until=lambda: reached in outside.log)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert world.executed.get("work", 0) == 0, "the workflow is not executed again"


def test_undo_survives_repeated_deaths(world):
    world.die(trip(), until=lambda: "step" in outside.log)
    world.die(trip(), until=lambda: "-c" in outside.log)
    world.die(trip(), until=lambda: "-b" in outside.log)
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+a", "+b", "+c"]


def test_undo_continues_in_the_next_process_after_a_close(world):
    async def main(app):
        await app.start(trip(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)

    world.do(main)
    assert world.row().undoing is not None
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_draining_process_starts_no_compensation(world):
    async def main(app):
        await app.start(trip(), id="run")
        while outside.attempts["-b"] == 0:
            await asyncio.sleep(0.1)
        return (await app.drain("test")).left

    assert world.do(main) == []
    assert outside.undone == ["-c", "-b"], "what acts is not cut"
    assert (world.status(), world.row().undoing is not None) == ("queued", True)
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_any_process_can_undo_a_run(file_world):
    """The life that ended does not undo: it gives the run back, ahead of new work."""
    called = []

    async def main(app):
        async with file_world.another(worker=True, workflows=[queued], ramp=0, poll=0.5) as other:
            run = await app.submit(queued(), id="run")
            with pytest.raises(ValueError):
                await run.result(timeout=LONG)
            called.append(other.executed["queued_act"])

    @workflow
    async def queued() -> None:
        await put("a")
        await fail()

    file_world.do(main)
    assert outside.log == ["+a", "-a"]
    assert file_world.row().lives == 2


def test_undo_does_not_call_the_workflow(world):
    """Code and arguments may have changed beyond recognition: what was done can be undone all the same."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    calls = []

    @workflow(name="trip")
    async def changed(then: str = "fail") -> str:
        calls.append(then)
        raise AssertionError

    async def main(app):
        return await (await app.start(changed(), id="run")).result(timeout=LONG)

    with pytest.raises(ValueError, match="no such luck"):
        world.do(main)
    assert (outside.undone, calls) == (["-c", "-b", "-a"], [])


def test_unreadable_arguments_do_not_stop_an_undo(world):
    world.die(trip("fail"), until=lambda: "-c" in outside.log)

    @workflow(name="trip")
    async def changed(when: int) -> str:
        raise AssertionError

    async def main(app):
        app._open.workflows.register(changed)
        row = world.row()
        app._open.runs.takeover.start(row, changed)
        return await app.get(changed, "run").result(timeout=LONG)

    with pytest.raises(ValueError, match="no such luck"):
        world.do(main)
    assert outside.undone == ["-c", "-b", "-a"]


def test_timeout_of_the_run_does_not_cut_its_undo(world):
    @workflow(timeout=30)
    async def slow() -> None:
        await book("a")
        await book("b")
        await sleep(24.9)
        await fail()

    with pytest.raises(ValueError):
        world.run(slow())
    assert outside.undone == ["-b", "-a"]


def test_pending_messages_timers_and_children_do_not_disturb_an_undo(world):
    @workflow
    async def busy() -> None:
        await put("a")
        waits = [
            asyncio.create_task(receive("word", str)),
            asyncio.create_task(asyncio.sleep(1000)),
        ]
        await asyncio.sleep(5)
        await put("b")
        await fail()
        await asyncio.gather(*waits)

    async def main(app):
        run = await app.start(busy(), id="run")
        await app.send("run", "word", "x")
        await run.result(timeout=LONG)

    with pytest.raises(ValueError):
        world.do(main)
    assert outside.undone == ["-b", "-a"]


# -- code that is not there


def forget(monkeypatch, *effects) -> None:
    """This process's code does not have them."""
    from outlast.execution import effect_call

    known = {
        name: ones
        for name, ones in effect_call._known.items()
        if name not in {one.name for one in effects}
    }
    monkeypatch.setattr(effect_call, "_known", known)


@pytest.mark.parametrize("missing", [book, unbook], ids=["the effect", "its compensation"])
def test_missing_compensation_waits_for_the_code(world, monkeypatch, missing):
    world.die(trip(), until=lambda: "-c" in outside.log)
    given_back = []
    with monkeypatch.context() as patched:
        forget(patched, missing)
        if missing is unbook:
            patched.setattr(book, "compensation", None)

        async def main(app):
            commit = app._open.store.commit
            app._open.store._store.commit = lambda commands: (  # what it returns
                given_back.extend(command for command in commands if isinstance(command, Release)),
                commit(commands),
            )[1]
            await app.start(trip(), id="run")
            await asyncio.sleep(60)

        try:
            world.do(main)
        finally:
            del world.store.commit
    assert len(given_back) >= 5
    assert {(command.delay, command.interrupted) for command in given_back[:-1]} == {
        (compensation.BACK_SECONDS, False)
    }
    assert world.status() in ("queued", "running")
    assert outside.undone == ["-c", "-b"]
    world.restart()
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_missing_compensation_parks_the_run_after_a_while(world, monkeypatch):
    world.die(trip(), until=lambda: "-c" in outside.log)
    with monkeypatch.context() as patched:
        forget(patched, put, take)
        before = world.clock()
        reason = parked(world)
        assert reason.startswith("stuck:")
        assert "put" in reason
        assert (
            compensation.UNKNOWN_SECONDS
            <= world.clock() - before
            <= compensation.UNKNOWN_SECONDS * 1.1
        )
        world.clock.advance(10_000)
        world.do(lambda app: app.retry("run"))
        before = world.clock()
        parked(world)
        assert world.clock() - before >= compensation.UNKNOWN_SECONDS
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]


def test_old_run_waits_as_long_for_the_code(world, monkeypatch):
    @workflow
    async def old() -> None:
        await put("a")
        await sleep(10 * compensation.UNKNOWN_SECONDS)
        await fail()

    world.die(old(), after=20)
    world.clock.advance(10 * compensation.UNKNOWN_SECONDS)
    with monkeypatch.context() as patched:
        forget(patched, put, take)

        async def main(app):
            await app.start(old(), id="run")
            await asyncio.sleep(compensation.UNKNOWN_SECONDS / 2)

        world.do(main)
        assert (world.status(), world.row().undoing is not None) == ("queued", True)
    with pytest.raises(ValueError):
        world.run(old())
    assert outside.log == ["+a", "-a"]


def test_process_with_the_code_finishes_the_undo(world, monkeypatch):
    """What was undone already, here `c`, needs no code any more."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    with monkeypatch.context() as patched:
        forget(patched, book, unbook)

        async def main(app):
            await app.start(trip(), id="run")
            await asyncio.sleep(60)

        world.do(main)
    assert outside.undone == ["-c", "-b"]


def test_unreadable_recorded_arguments_can_be_fixed_and_retried(world, monkeypatch):
    """The effect takes another type by now."""
    world.die(trip(), until=lambda: "-c" in outside.log)
    other = {}
    with monkeypatch.context() as patched:

        @effect(timeout=5, idempotent=True, name="put")
        async def changed(label: int, seconds: float, key: str = KEY) -> int:
            return label

        @changed.compensate(name="take")
        async def untouched(it: int, label: int) -> None:
            other["called"] = True

        from outlast.execution import effect_call

        patched.setitem(effect_call._known, "put", {put.code: changed})
        reason = parked(world)
        assert reason.startswith("stuck:")
        assert "outlast retry run" in reason
    monkeypatch.undo()
    from outlast.execution import effect_call

    effect_call._known["put"] = {put.code: put}
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError, match="no such luck"):
        world.run(trip())
    assert outside.undone == ["-c", "-b", "-a"]
    assert other == {}


# -- a person decides to undo


def test_decide_compensate_confirms_and_undoes_the_run(world):
    dies_in_the_act(world, one_act("wire"), after=True)
    reason = parked(world, one_act("wire"))
    assert "unknown: wire#1" in reason
    decide(world, "wire", compensate=True, result="wired x")
    with pytest.raises(RunCancelled, match="a person decided"):
        world.run(one_act("wire"))
    assert outside.log == ["+first", "+x", "-x", "-first"]
    assert outside.told == ["wired x"]


def test_parked_run_that_is_cancelled_is_undone_without_its_code(world):
    dies_in_the_act(world, one_act("wire"), after=False)
    parked(world, one_act("wire"))
    decide(world, "wire", did_not=True)
    world.die(one_act("wire"), until=lambda: outside.attempts["x"] == 2)
    parked(world, one_act("wire"))
    assert world.do(lambda app: app.cancel("run", "enough")) == "queued"
    assert "unknown: wire#1" in parked(world, one_act("wire"))
    decide(world, "wire", did_not=True)
    with pytest.raises(RunCancelled, match="enough"):
        world.run(one_act("wire"))
    assert outside.log == ["+first", "-first"]
    assert (
        json.loads(next(one.value for one in world.journal() if one.kind == "undoing"))["status"]
        == "cancelled"
    )
