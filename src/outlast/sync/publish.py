"""Provide `publish` for sync steps and workflows."""

from __future__ import annotations

from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from outlast.api import publish as core
from outlast.errors import NotInRun
from outlast.execution.refusal import refused
from outlast.execution.step_execution import BODY
from outlast.sync.context import _on_run_loop

if TYPE_CHECKING:
    from outlast.execution.publishing import Publisher


class Output:
    """The stream that `publish(name)` opens: `with publish(name) as out`."""

    __slots__ = ("_publisher",)

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def write(self, value: Any) -> None:
        """Publish a value. This never waits: the value is written soon, together with others."""
        self._publisher.write(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return


@overload
def publish(name: str) -> Output: ...
@overload
def publish(name: str, value: Any) -> None: ...
def publish(name: str, value: Any | EllipsisType = ...) -> Output | None:
    """Publish values to a stream of the run, in a sync step or workflow.

        publish("status", "searching")             # in a step or a workflow

        with publish("answer") as out:             # in a step
            for token in model(prompt):
                out.write(token)

    It works like `outlast.publish`.
    """
    if BODY.get() is not None:
        publisher = core.publisher_for("publish", name)
        if value is ...:
            return Output(publisher)
        publisher.write(value)
        return None
    if value is ...:
        raise refused(
            NotInRun(
                "publish(name) opens a stream in a step's body. In a workflow's own code, publish "
                "one value: `publish(name, value)`."
            )
        )

    async def published() -> None:
        await core.publish(name, value)

    _on_run_loop("publish", published)
    return None
