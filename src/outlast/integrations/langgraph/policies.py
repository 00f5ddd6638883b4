"""Apply the retry and time-out policies of nodes inside their steps.

LangGraph would apply them on the workflow's loop, with random pauses and the clock of the process,
and to exceptions that were rebuilt from the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphBubbleUp
from langgraph.types import RetryPolicy

from outlast.errors import OutlastError

Kind = Literal["run", "idle"]


def find_policy(
    policies: Sequence[RetryPolicy], error: Exception, failures: int
) -> RetryPolicy | None:
    """Return the policy by which a node is tried again after this many failures, or None.

    As in LangGraph, the first policy that fits the error decides. Outlast's own errors, interrupts
    and commands are not retried.
    """
    if isinstance(error, (OutlastError, GraphBubbleUp)):
        return None
    policy = next((policy for policy in policies if _fits(policy, error)), None)
    return policy if policy is not None and failures < policy.max_attempts else None


def _fits(policy: RetryPolicy, error: Exception) -> bool:
    retry_on = policy.retry_on
    if isinstance(retry_on, type):
        return isinstance(error, retry_on)
    if isinstance(retry_on, Sequence):
        return isinstance(error, tuple(retry_on))
    return bool(retry_on(error))


def pause(policy: RetryPolicy, failures: int, chance: float) -> float:
    """Return the seconds before the next attempt. `chance` is the random part, below 1."""
    seconds = policy.initial_interval * policy.backoff_factor ** (failures - 1)
    return min(policy.max_interval, seconds) + (chance if policy.jitter else 0)


class Activity(BaseCallbackHandler):
    """Note when a node last made progress, for its idle time-out."""

    run_inline = True

    def __init__(self) -> None:
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        self.since = self._time()
        self.last = self.since

    def touch(self, *_: Any, **__: Any) -> None:
        """Note progress now."""
        self.last = self._time()

    def elapsed(self) -> float:
        """Return the seconds since the node began."""
        return self._time() - self.since

    def idle(self) -> float:
        """Return the seconds since the last progress."""
        return self._time() - self.last

    on_llm_start = on_chat_model_start = on_llm_new_token = on_llm_end = touch
    on_chain_start = on_chain_end = on_tool_start = on_tool_end = touch
    on_retriever_start = on_retriever_end = on_text = on_custom_event = touch


async def bounded(work: Coroutine[Any, Any, Any], node: str, policy: Any, seen: Activity) -> Any:
    """Await the work of a node within its time-outs. Raise LangGraph's NodeTimeoutError.

    `policy` is a TimeoutPolicy, which exists from LangGraph 1.2 on.
    """
    from langgraph.errors import NodeTimeoutError

    limits: dict[Kind, float | None] = {
        "run": _seconds(policy.run_timeout),
        "idle": _seconds(policy.idle_timeout),
    }
    task = asyncio.ensure_future(work)
    try:
        while True:
            left = {
                kind: limit - _spent(seen, kind)
                for kind, limit in limits.items()
                if limit is not None
            }
            kind = min(left, key=lambda one: left[one])
            done, _ = await asyncio.wait({task}, timeout=max(0.0, left[kind]))
            if done:
                return task.result()
            limit = limits[kind]
            if limit is not None and _spent(seen, kind) >= limit:
                raise NodeTimeoutError(
                    node,
                    seen.elapsed(),
                    kind=kind,
                    run_timeout=limits["run"],
                    idle_timeout=limits["idle"],
                )
    finally:
        # A node that ignores the cancellation is left behind: its writes no longer count.
        task.cancel()


def _spent(seen: Activity, kind: Kind) -> float:
    return seen.elapsed() if kind == "run" else seen.idle()


def _seconds(value: float | timedelta | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value
