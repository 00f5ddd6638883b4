"""Provide `publish`: show values of a run to its viewers while the run executes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from types import EllipsisType, TracebackType
from typing import Any, Self, overload

from outlast.codec.identifiers import check_name
from outlast.errors import NotInRun
from outlast.execution.progress import body_of
from outlast.execution.publishing import Publisher, publish_in_run, publisher_of
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.execution.threads import THREAD


class Output:
    """The stream that `publish(name)` opens: `async with publish(name) as out`."""

    __slots__ = ("_publisher",)

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def write(self, value: Any) -> None:
        """Publish a value. This never waits: the value is written soon, together with others."""
        self._publisher.write(value)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return


class _Written:
    """An awaitable that is done: a step does not wait for what it publishes."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


@overload
def publish(name: str) -> Output: ...
@overload
def publish(name: str, value: Any) -> Awaitable[None]: ...
def publish(name: str, value: Any | EllipsisType = ...) -> Output | Awaitable[None]:
    """Publish values to a stream of the run. Viewers follow it with `app.watch(run_id, name)`.

        await publish("status", "searching")             # in a step or a workflow

        async with publish("answer") as out:             # in a step
            async for token in model(prompt):
                await out.write(token)

    Values are plain JSON. A viewer of a text joins the strings. In a step, a value is written
    within `publish_interval` and does not wait. If the step is repeated, what it published is
    replaced, and viewers get a `reset` event. In a workflow's own code the value is recorded once.
    """
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop):
        if value is ...:
            raise refused(
                NotInRun(
                    "publish(name) opens a stream in a step's body. In a workflow's own code, "
                    "publish one value: `await publish(name, value)`."
                )
            )
        settings = loop.execution.services.settings
        check_name(name, settings.name_length_max, "stream")
        return publish_in_run(loop.execution, name, value)
    if BODY.get() is None and THREAD.get() is not None:
        raise refused(NotInRun("this workflow is sync: use outlast.sync.publish(...)."))
    publisher = publisher_for("publish", name)
    if value is ...:
        return Output(publisher)
    publisher.write(value)
    return _Written()


def publisher_for(what: str, name: str) -> Publisher:
    """Return the publisher of the current step for a stream.

    Raise NotInRun outside a step's body, and in an effect.
    """
    body = publishing_step(what)
    check_name(name, body.execution.services.settings.name_length_max, "stream")
    return publisher_of(body, name)


def publishing_step(what: str) -> StepExecution:
    body = body_of(what)
    if body.is_effect:
        raise NotInRun(
            f"{what}() is not for effects: an effect that acted may not act again, so what it "
            "published could not be replaced. Publish in a step or in the workflow."
        )
    return body
