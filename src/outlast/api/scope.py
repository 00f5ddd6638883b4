"""Define `scope`: a part of a workflow whose calls have stable keys."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from outlast.api.context import _workflow
from outlast.api.definition_checks import NAME_LENGTH_MAX
from outlast.codec.identifiers import check_name, escape_name
from outlast.errors import OutlastError
from outlast.execution.scopes import EXPLICIT_SCOPE, ExplicitScope

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution


class scope:  # noqa: N801 - used like a function
    """Number the calls of a library by name, whichever tasks it creates.

        async with scope("agent:1"):
            result = await agent.run(question)

    By default, the key of a call contains the tasks around it, so an upgrade of a library that
    creates other tasks would park the runs in flight. Inside a scope, a call's key is the scope's
    name, the call's name and a number. Scopes nest. A name that is used again is numbered.

    With `inline=True`, functions that the library passes to `asyncio.to_thread` or to
    `loop.run_in_executor` execute on the workflow's loop instead. They are workflow code then: they
    must not do I/O or block.

    With `in_task=False`, the task that enters the block is not part of its name. Use it in an
    adapter whose block a task of the library enters. Blocks with an equal name are then numbered
    in the order in which they are entered.

    Use it in a workflow, with `async with` or `with`.
    """

    def __init__(self, name: str, *, inline: bool = False, in_task: bool = True) -> None:
        """Check the name. The scope begins when its block is entered."""
        self.name = check_name(name, NAME_LENGTH_MAX, "scope name")
        self.inline = inline
        self.in_task = in_task
        self._execution: RunExecution | None = None
        self._scope: ExplicitScope | None = None
        self._outer: ExplicitScope | None = None

    def __enter__(self) -> Self:
        if self._execution is not None:
            raise OutlastError(f"scope {self.name!r} is already entered. Create another one.")
        execution = _workflow("scope")
        execution.check()
        self._execution = execution
        execution.on_run_loop(self._enter)
        # The thread of a sync workflow has a context of its own.
        EXPLICIT_SCOPE.set(self._scope)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        execution, self._execution = self._execution, None
        if execution is not None and execution.end_reason is None:
            execution.on_run_loop(self._leave)
            self._leave()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def _enter(self) -> None:
        assert self._execution is not None
        loop = self._execution.loop
        self._outer = EXPLICIT_SCOPE.get()
        around = loop.explicit_scope()
        inline = self.inline or (around is not None and around.inline)
        parent = loop.scope() if self.in_task else around or loop.root
        path = f"{parent.key(escape_name(self.name))}/"
        self._scope = ExplicitScope(path, loop, inline=inline)
        EXPLICIT_SCOPE.set(self._scope)

    def _leave(self) -> None:
        EXPLICIT_SCOPE.set(self._outer)

    def __repr__(self) -> str:
        return f"<scope {self.name!r}>"
