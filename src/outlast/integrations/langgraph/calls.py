"""Execute one piece of a graph in a step, until it has ended.

It may end in several ways besides returning: it may ask a person, or fail and be tried again. Each
attempt is a step of its own, so a replay takes the same way.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple

from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.types import RetryPolicy

from outlast.api.context import receive, sleep
from outlast.api.step import Step, step
from outlast.codec.signature import Unrecorded
from outlast.integrations.langgraph.events import Events
from outlast.integrations.langgraph.framework import is_invalid_resume
from outlast.integrations.langgraph.policies import find_policy, pause
from outlast.integrations.langgraph.values import ValueCodec

INTERRUPT = "interrupt"
"""The outcome of an attempt that asks a person, and the prefix of the message that answers it."""
NAME = "message"
TASKS = "tasks"
RETRY = "retry"
PARENT = "parent"

GRAPH_PATH: ContextVar[str] = ContextVar("outlast_langgraph_path", default="")
"""The names of the nodes around a nested graph, such as `research/`."""


class Environment(NamedTuple):
    """What all nodes of a durable graph share."""

    codec: ValueCodec
    events: Events


@dataclass
class Attempt:
    """What the next attempt of a piece of a graph receives."""

    answers: list[Any] = field(default_factory=list)
    """The answers to its interrupts, in the order of the questions."""
    failures: int = 0
    question: Any = None
    """The last question, as plain JSON."""
    tasks: dict[str, Any] = field(default_factory=dict)
    """The results of the `@task` calls that earlier attempts completed, as plain JSON."""


Work = Callable[[Attempt], Awaitable[dict[str, Any]]]


async def _execute(body: Annotated[Any, Unrecorded]) -> Any:
    return await body()


def node_step(name: str) -> Step[..., Any]:
    """Return the step of a node, a tool or a task."""
    made: Step[..., Any] = step(name=name)(_execute)
    return made


async def ask(env: Environment, label: str) -> Any:
    """Wait for the answer to an interrupt. As in LangGraph, None is no answer."""
    while True:
        answer = env.codec.decode(await receive(message_name(label)))
        if answer is not None:
            return answer


def message_name(label: str) -> str:
    """Return the name of the message that answers an interrupt."""
    return f"{INTERRUPT}:{label}"


async def execute(
    env: Environment,
    called: Step[..., Any],
    key: str,
    label: str,
    policies: tuple[RetryPolicy, ...],
    work: Work,
) -> dict[str, Any]:
    """Execute `work` in steps until it returns. Return its outcome as plain JSON.

    Raise ParentCommand for a command to an outer graph, and the error of the last attempt.
    """
    attempt = Attempt()
    while True:
        body = partial(_attempt, env, label, policies, work, attempt)
        outcome: dict[str, Any] = await called.keyed(key)(body)
        if INTERRUPT in outcome:
            rejected = attempt.answers if outcome.get("rejected") else []
            attempt = Attempt(
                [*(attempt.answers[:-1] if rejected else attempt.answers)],
                attempt.failures,
                outcome[INTERRUPT],
                outcome[TASKS],
            )
            attempt.answers.append(await ask(env, label))
        elif RETRY in outcome:
            attempt = Attempt(
                attempt.answers, attempt.failures + 1, attempt.question, outcome[TASKS]
            )
            await sleep(outcome[RETRY]["seconds"])
        elif PARENT in outcome:
            raise ParentCommand(env.codec.decode(outcome[PARENT]))
        else:
            return outcome


async def _attempt(
    env: Environment,
    label: str,
    policies: tuple[RetryPolicy, ...],
    work: Work,
    given: Attempt,
) -> dict[str, Any]:
    """Make one attempt, in a step's body."""
    # A repeated body must begin as the first one did.
    attempt = Attempt(list(given.answers), given.failures, given.question, dict(given.tasks))
    asks = {NAME: message_name(label), TASKS: attempt.tasks}
    try:
        return await work(attempt)
    except GraphInterrupt as error:
        questions = error.args[0] if error.args else ()
        value = questions[0].value if questions else None
        return {INTERRUPT: env.codec.encode(value), **asks}
    except ParentCommand as error:
        return {PARENT: env.codec.encode(error.args[0])}
    except Exception as error:
        if is_invalid_resume(error):
            return {INTERRUPT: attempt.question, "rejected": str(error), **asks}
        policy = find_policy(policies, error, attempt.failures + 1)
        if policy is None:
            raise
        seconds = pause(policy, attempt.failures + 1, random.random())  # noqa: S311 - no secret
        message = f"{type(error).__qualname__}: {error}"
        return {RETRY: {"seconds": seconds, "error": message[:500]}, TASKS: attempt.tasks}
