"""What the type checkers must refuse. Never executed: `test_typing.py` hands it to mypy and pyright, both strict.

Each mistake is ignored for mypy and for pyright by the very code it must have; an ignore that is not needed is an error in
both, so a mistake that goes unnoticed fails the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from outlast import Outlast, Run, receive, resume_stream, run, sleep, step, sync, workflow
from outlast.testing import App, crash_everywhere


@step
async def research(topic: str, depth: int = 1) -> str:
    return topic * depth


@step(retries=3)
def count(text: str) -> int:
    return len(text)


class Agent:
    @step
    async def think(self, about: str) -> str:
        return about

    @step
    def remember(self, what: str) -> int:
        return len(what)


@workflow
async def report(topic: str) -> str:
    return await research(topic)


@workflow
def tally(words: list[str]) -> int:
    return len(words)


# -- the arguments of a workflow

report(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
report()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
report("tides", "moon")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
report(subject="tides")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
tally("words")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# -- the result of a run

wrong: int = run(report("tides"))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
run(report)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
run(research("tides"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@workflow
async def inside(topic: str) -> str:
    # -- the arguments of a step, and of a method
    await research(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await research(topic, deep=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await count.aio()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    agent = Agent()
    await agent.think(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await agent.think()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await agent.remember.aio(what=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    agent.remember(topic, topic)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    # -- a missing await
    research(topic)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    agent.think(topic)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    count.aio(topic)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    sleep(1)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    notes: str = research(topic)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    child: str = report(topic)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    research(topic).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    # -- an await too many: a sync step's call is its result
    await count(topic)  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]

    # -- the wrong type
    length: int = await research(topic)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    number: int = await report(topic)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    yes: bool = await receive("approval", str)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    print(notes, child, length, number, yes)
    return await count.aio(topic)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


# -- streams


async def say(prompt: str) -> AsyncIterator[str]:
    yield prompt


async def go_on(so_far: str, words: int) -> AsyncIterator[str]:
    yield so_far * words


@step
async def streaming(prompt: str) -> str:
    resume_stream(say, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resume_stream(say)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportArgumentType]
    resume_stream(go_on, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resume_stream(go_on, prompt, by="prefill")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    resume_stream(say, by="cursor")  # type: ignore[call-arg, call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    resume_stream(say, prompt, by="magic")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with resume_stream(say, prompt):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    with sync.resume_stream(say, prompt):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass
    return prompt


# -- options that do not exist


@step(retry=3)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def misspelt(topic: str) -> str:
    return topic


@workflow(timeout="1h")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
async def mistimed(topic: str) -> str:
    return topic


async def program() -> None:
    with Outlast():  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    async with Outlast() as app:
        app.start(report("tides"))  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await app.start(report)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        counted: Run[int] = await app.start(report("tides"))  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
        number: int = await app.get(report, "r-1").result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        print(counted, number)


def sync_program() -> None:
    wrong: int = sync.run(report("tides"))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    with sync.Outlast() as app:
        app.start(report("tides"), name="r-1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        app.cancel("r-1", why=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        counted: sync.Run[int] = app.start(report("tides"))  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
        number: int = app.get(report, "r-1").result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        print(wrong, counted, number)


# -- settings that do not exist, or are of another type

Outlast(grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Outlast(grace="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Outlast().configure(grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
run(report("tides"), grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sync.Outlast(grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sync.run(report("tides"), grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
App(grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
crash_everywhere(report("tides"), grase=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
run(report("tides"), id="r-1", on_conflict="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
