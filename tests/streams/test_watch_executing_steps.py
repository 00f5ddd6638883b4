"""A viewer of a whole run sees which steps execute, once they take long."""

import asyncio
import json

from outlast import Outlast, effect, publish, step, workflow
from outlast.engine.executing_steps import EXECUTING
from outlast.store.commands import UpdateSession
from outlast.store.session_rows import SessionQuery

gates: dict[str, asyncio.Event] = {}


@step
async def slow(name: str) -> str:
    publish("begun", name)
    await gates[name].wait()
    return name


@effect(timeout=60, undo=None)
async def act(name: str) -> str:
    await gates[name].wait()
    return name


@workflow
async def two(first: str, second: str) -> str:
    return await slow(first) + await act(second)


@step
async def quick(number: int) -> int:
    return number


@workflow
async def many() -> int:
    return sum([await quick(number) for number in range(20)])


def named(event):
    return [one["name"] for one in event.value["steps"]]


async def until_executing(watch, *names):
    """Return the events up to the one that says that exactly these steps execute."""
    seen = []
    async for event in watch:
        seen.append(event)
        if event.kind == "data" and event.value["type"] == "executing" and named(event) == [*names]:
            return seen
    raise AssertionError(seen)


def test_step_that_takes_long_is_shown_to_viewers_in_other_processes_until_it_ends(place):
    gates.update(a=asyncio.Event(), b=asyncio.Event())

    async def main():
        async with Outlast(place, signals=0) as app, Outlast(place, signals=0) as other:
            run = await app.start(two("a", "b"), id="r")
            watch = other.watch("r")
            *_, event = await until_executing(watch, "slow")
            (shown,) = event.value["steps"]
            assert (shown["key"], shown["kind"], shown["attempt"]) == ("slow#1", "step", 1)
            assert shown["started"] is not None
            gates["a"].set()
            seen = await until_executing(watch, "act")
            types = [event.value["type"] for event in seen]
            assert types.index("step") < types.index("intent") < types.index("executing")
            assert [event.value["steps"][0]["kind"] for event in seen[-1:]] == ["effect"]
            gates["b"].set()
            rest = [event async for event in watch]
            assert rest[-1].result == "ab"
            assert await run.result() == "ab"

    asyncio.run(main())


def test_viewer_that_returns_is_not_told_again_what_executes(address):
    gates.update(a=asyncio.Event(), b=asyncio.Event())

    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(two("a", "b"), id="r")
            *_, event = await until_executing(app.watch("r"), "slow")
            gates["a"].set()
            gates["b"].set()
            rest = [one async for one in app.watch("r", after=event.cursor)]
            types = [one.value["type"] for one in rest if one.kind == "data"]
            assert types[0] == "step"
            assert rest[-1].kind == "end"

    asyncio.run(main())


def test_what_a_lost_claim_has_left_is_not_shown(address):
    gates.update(a=asyncio.Event(), b=asyncio.Event())

    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(two("a", "b"), id="r")
            watch = app.watch("r")
            await until_executing(watch, "slow")
            row = app._open.store.run("r")
            for text in (
                json.dumps([row.fence - 1, [["old#1", "old", "step", 1, 0.0]]]),
                json.dumps([row.fence, [["short"]]]),
                "{",
            ):
                fields = {str(row.pk): text}
                left = UpdateSession(row.worker, text, fields, 60, space=EXECUTING)
                await app._open.writer.execute(left)
                *_, event = await until_executing(app.watch("r", after=watch.cursor))
                assert event.value["steps"] == []
            gates["a"].set()
            gates["b"].set()

    asyncio.run(main())


def test_short_steps_write_nothing(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            for number in range(3):
                await (await app.start(many(), id=f"r-{number}")).result()
                app._open.executing_steps._tick()
            assert app._open.store.sessions(SessionQuery(EXECUTING)) == []

    asyncio.run(main())
