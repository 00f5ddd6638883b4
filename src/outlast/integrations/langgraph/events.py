"""Show outside what a node writes while it executes, and record what its models cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.base import BaseCallbackManager
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig

from outlast.api.context import Place, current, place
from outlast.integrations.langgraph.framework import StreamMessagesHandler


@dataclass(frozen=True)
class GraphEvent:
    """Something that a node streamed while it executed.

    `mode` and `data` are those of `graph.astream`: for `"custom"`, what the node passed to its
    stream writer; for `"messages"`, a chunk of a message and its metadata.
    """

    run_id: str
    node: str
    mode: Literal["custom", "messages"]
    data: Any


EventHandler = Callable[[GraphEvent], None]


class Events:
    """Pass on what nodes stream. A node that is not executed, because it is recorded, is silent."""

    def __init__(self, handler: EventHandler | None) -> None:
        self._handler = handler

    def writer(self, node: str) -> Callable[[Any], None]:
        """Return the stream writer of a node."""
        return lambda chunk: self._emit(node, "custom", chunk)

    def attach(self, config: RunnableConfig, node: str) -> RunnableConfig:
        """Return a config whose models report their tokens and their usage."""
        handlers: list[BaseCallbackHandler] = [UsageRecorder()]
        if self._handler is not None:
            handlers.append(
                StreamMessagesHandler(
                    lambda chunk: self._emit(node, "messages", chunk[2]), subgraphs=True
                )
            )
        callbacks = config.get("callbacks")
        if isinstance(callbacks, BaseCallbackManager):
            manager = callbacks.copy()
            for handler in handlers:
                manager.add_handler(handler, inherit=True)
            return {**config, "callbacks": manager}
        return {**config, "callbacks": [*(callbacks or ()), *handlers]}

    def _emit(self, node: str, mode: Literal["custom", "messages"], data: Any) -> None:
        if self._handler is not None and place() in (Place.STEP, Place.EFFECT):
            self._handler(GraphEvent(current().id, node, mode, data))


class UsageRecorder(BaseCallbackHandler):
    """Record the tokens of each model call as a cost of the step that made it."""

    run_inline = True

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Record the usage of a model call that has ended."""
        if place() not in (Place.STEP, Place.EFFECT):
            return
        for generation in (one for batch in response.generations for one in batch):
            message = generation.message if isinstance(generation, ChatGeneration) else None
            usage = getattr(message, "usage_metadata", None)
            if usage:
                current().cost(
                    tokens=usage["total_tokens"],
                    input_tokens=usage["input_tokens"],
                    output_tokens=usage["output_tokens"],
                )
