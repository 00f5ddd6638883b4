"""What this adapter uses of LangGraph besides its public interface, in one place.

A graph hands each node its services in `config["configurable"]`, under reserved names. They are the
same in all 1.x releases that the tests cover.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._config import recast_checkpoint_ns
from langgraph._internal._constants import (
    CONFIG_KEY_CALL,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_CHECKPOINTER,
    CONFIG_KEY_READ,
    CONFIG_KEY_RUNTIME,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_SEND,
    CONFIG_KEY_STREAM,
    RESUME,
    RETURN,
)
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.pregel._read import PregelNode
from langgraph.pregel._write import ChannelWrite
from langgraph.runtime import Runtime

try:
    from langgraph.errors import is_invalid_resume
except ImportError:  # before 1.2

    def is_invalid_resume(error: BaseException) -> bool:  # noqa: ARG001
        """Return whether a node rejected an answer. Older releases do not check answers."""
        return False


__all__ = [
    "CONFIGURABLE",
    "RETURN",
    "ChannelWrite",
    "PregelNode",
    "StreamMessagesHandler",
    "Writes",
    "as_runnable",
    "call_of",
    "copy_node",
    "has_field",
    "is_for_graph",
    "is_invalid_resume",
    "replace_writes",
    "runtime_of",
    "set_current_config",
    "task_of",
    "with_services",
    "without_answers",
]

CONFIGURABLE: Literal["configurable"] = "configurable"
Writes = Sequence[tuple[str, Any]]
Call = Callable[..., Any]


class TaskPlace:
    """Which task of its graph a node executes: its superstep, and its index if it was sent."""

    def __init__(self, step: int, index: int | None) -> None:
        self.step = step
        self.index = index

    @property
    def key(self) -> str:
        """Return the key of the task among those of its node. It is the same in every life."""
        return f"{self.step}" if self.index is None else f"{self.step}.{self.index}"


def task_of(config: RunnableConfig) -> TaskPlace:
    """Return the place of the task that this config belongs to."""
    metadata = config.get("metadata") or {}
    path = metadata.get("langgraph_path") or ()
    # The path of a task that was sent contains its index, and a flag at its end.
    index = next((part for part in reversed(path) if type(part) is int), None)
    return TaskPlace(metadata.get("langgraph_step", 0), index)


def runtime_of(config: RunnableConfig) -> Runtime[Any]:
    """Return the runtime that a graph hands its nodes."""
    runtime: Runtime[Any] = config[CONFIGURABLE][CONFIG_KEY_RUNTIME]
    return runtime


def call_of(config: RunnableConfig) -> Call:
    """Return the function that schedules a `@task`."""
    call: Call = config[CONFIGURABLE][CONFIG_KEY_CALL]
    return call


def replace_writes(config: RunnableConfig, writes: Writes) -> None:
    """Make these the writes of the task that this config belongs to."""
    send = config[CONFIGURABLE][CONFIG_KEY_SEND]
    made = getattr(send, "__self__", None)
    if isinstance(made, deque):
        made.clear()
    send(list(writes))


def set_current_config(config: RunnableConfig) -> None:
    """Make this the config that `get_config()` and `interrupt()` find, in the current task."""
    var_child_runnable_config.set(config)


def is_for_graph(command_graph: str | None, config: RunnableConfig, node: str) -> bool:
    """Return whether a command that a nested graph sent is for the graph of this node."""
    namespace = config[CONFIGURABLE][CONFIG_KEY_CHECKPOINT_NS]
    return command_graph in (namespace, recast_checkpoint_ns(namespace), node)


def with_services(
    config: RunnableConfig,
    *,
    answers: Sequence[Any],
    runtime: Runtime[Any],
    call: Call | None = None,
) -> tuple[RunnableConfig, deque[tuple[str, Any]]]:
    """Return a config for one execution of a node, and the writes that it will make.

    The node writes there instead of to its graph, `interrupt()` returns the answers in order, and
    nothing that it does reaches the workflow's loop.
    """
    given = config[CONFIGURABLE]
    writes: deque[tuple[str, Any]] = deque()
    read = given[CONFIG_KEY_READ]
    *services, task = read.args
    following = iter(answers)
    scratchpad = replace(
        given[CONFIG_KEY_SCRATCHPAD],
        resume=[],
        get_null_resume=lambda consume=False: next(following, None) if consume else None,
        call_counter=itertools.count().__next__,
        interrupt_counter=itertools.count().__next__,
        subgraph_counter=itertools.count().__next__,
    )
    own = {
        **given,
        CONFIG_KEY_SEND: writes.extend,
        CONFIG_KEY_READ: partial(read.func, *services, task._replace(writes=writes)),
        CONFIG_KEY_SCRATCHPAD: scratchpad,
        CONFIG_KEY_RUNTIME: runtime,
        CONFIG_KEY_CHECKPOINTER: None,
    }
    own.pop(CONFIG_KEY_STREAM, None)
    if call is not None:
        own[CONFIG_KEY_CALL] = call
    return {**config, CONFIGURABLE: own}, writes


def as_runnable(node: PregelNode, writers: list[Any]) -> Runnable[Any, Any] | None:
    """Return these writers of a node as one runnable, or None if there are none."""
    return node.copy({"bound": None, "writers": writers}).node


def without_answers(writes: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the writes without those by which LangGraph remembers answers to interrupts."""
    return [(channel, value) for channel, value in writes if channel != RESUME]


def copy_node(node: PregelNode, **changes: Any) -> PregelNode:
    """Return a node with other attributes. Leave out those that this release does not know."""
    return node.copy({name: value for name, value in changes.items() if name in vars(node)})


def has_field(kind: type, name: str) -> bool:
    """Return whether a dataclass of LangGraph has this field in this release."""
    return any(field.name == name for field in fields(kind))
