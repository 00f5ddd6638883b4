"""Execute a functional `@entrypoint` as workflow code, and its tasks as steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.types import RetryPolicy

from outlast.integrations.langgraph import framework
from outlast.integrations.langgraph.calls import GRAPH_PATH, Attempt, execute, node_step
from outlast.integrations.langgraph.inner_tasks import call_task, task_name
from outlast.integrations.langgraph.nodes import NodeInWorkflow

RESULT = "result"


class Entrypoint(NodeInWorkflow):
    """Execute the function of an `@entrypoint` on the workflow's loop."""

    def _call(self, config: RunnableConfig, memory: dict[Any, Any]) -> Callable[..., Any] | None:
        """Return a function that makes each `@task` a step.

        A task that has ended is not called again when the entrypoint begins again.
        """
        schedule = framework.call_of(config)
        number = itertools.count(1).__next__

        def call(
            func: Callable[..., Any],
            given: Any,
            *,
            retry_policy: Sequence[RetryPolicy] | None = None,
            **options: Any,
        ) -> Any:
            key = (task_name(func), number())
            made = memory.get(key)
            if made is None or (made.done() and made.exception() is not None):
                options.update(cache_policy=None)
                options.pop("timeout", None)
                durable = self._durable(func, tuple(retry_policy or ()))
                made = memory[key] = schedule(durable, given, **options)
            return made

        return call

    def _durable(
        self, func: Callable[..., Any], policies: tuple[RetryPolicy, ...]
    ) -> Callable[..., Any]:
        name = task_name(func)
        called = node_step(name)

        async def task(*args: Any, **kwargs: Any) -> Any:
            config = get_config()
            place = framework.task_of(config)
            label = f"{GRAPH_PATH.get()}{name}:{place.index}"
            work = partial(self._task_body, func, args, kwargs)
            outcome = await execute(self._env, called, place.key, label, policies, work)
            return self._env.codec.decode(outcome[RESULT])

        return wraps(func)(task)

    async def _task_body(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        attempt: Attempt,
    ) -> dict[str, Any]:
        return {RESULT: self._env.codec.encode(await call_task(func, args, kwargs))}
