"""Execute the `@task` functions that a node calls, as steps within the node's step."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from langgraph.types import RetryPolicy

from outlast.api.step import Step, step
from outlast.codec.signature import Unrecorded
from outlast.integrations.langgraph.calls import Attempt
from outlast.integrations.langgraph.policies import find_policy, pause
from outlast.integrations.langgraph.values import ValueCodec


async def _execute(body: Annotated[Any, Unrecorded], call: int) -> Any:  # noqa: ARG001
    """Execute one call of a task. `call` is its number among the calls of the task."""
    return await body()


class InnerTasks:
    """The calls of tasks in one attempt of a node.

    A task that has ended is not executed again, neither after a crash nor when the node begins
    again because a person has answered.
    """

    def __init__(self, codec: ValueCodec, attempt: Attempt) -> None:
        self._codec = codec
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()
        self._numbers: defaultdict[str, Callable[[], int]] = defaultdict(
            lambda: itertools.count(1).__next__
        )

    def call(
        self,
        func: Callable[..., Any],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        *,
        retry_policy: Sequence[RetryPolicy] | None = None,
        **options: Any,
    ) -> Any:
        """Start a task. Return a future, for the event loop or for the thread that calls."""
        name = task_name(func)
        work = self._result(name, self._numbers[name](), func, given, tuple(retry_policy or ()))
        if asyncio._get_running_loop() is self._loop:
            return asyncio.ensure_future(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _result(
        self,
        name: str,
        number: int,
        func: Callable[..., Any],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        policies: tuple[RetryPolicy, ...],
    ) -> Any:
        key = f"{name}#{number}"
        if key not in self._attempt.tasks:
            called: Step[..., Any] = step(name=name)(_execute)

            async def body() -> Any:
                return self._codec.encode(await call_task(func, *given))

            self._attempt.tasks[key] = await retried(policies, lambda: called(body, number))
        return self._codec.decode(self._attempt.tasks[key])


def task_name(func: Callable[..., Any]) -> str:
    """Return the name of the function of a `@task`."""
    return getattr(func, "__name__", type(func).__name__)


async def call_task(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of a task, in a thread if it is sync."""
    if inspect.iscoroutinefunction(func):
        return await func(*args, **kwargs)
    return await asyncio.to_thread(func, *args, **kwargs)


async def retried(
    policies: tuple[RetryPolicy, ...], make: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Await what `make` returns, again after an error that a policy covers."""
    failures = 0
    while True:
        try:
            return await make()
        except Exception as error:
            failures += 1
            policy = find_policy(policies, error, failures)
            if policy is None:
                raise
            await asyncio.sleep(pause(policy, failures, random.random()))  # noqa: S311
