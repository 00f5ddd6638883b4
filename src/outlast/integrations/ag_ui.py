"""Encode what a viewer receives as events of AG-UI, the protocol of CopilotKit and others.

    @web.get("/agent/{run_id}")
    async def agent(run_id: str) -> StreamingResponse:
        events = encode(app.watch(run_id, "answer"), thread_id="thread-1", run_id=run_id)
        return StreamingResponse(events, media_type="text/event-stream")

The events are those of version 1 of the protocol. Nothing needs to be installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from outlast.api.watch import DataEvent, EndEvent, ResetEvent, WatchEvent
from outlast.integrations.viewer_events import frame, frames, why_ended

__all__ = ["encode"]


async def encode(
    events: AsyncIterable[WatchEvent],
    *,
    thread_id: str,
    run_id: str,
    history: Sequence[dict[str, Any]] = (),
    name: str = "answer",
) -> AsyncIterator[str]:
    """Yield the server-sent events of one run of an agent.

    A reset sends `history`, the messages before this run, as a MESSAGES_SNAPSHOT: it replaces what
    the client shows, and the text begins again as another message. Values that are not strings
    become CUSTOM events with this name. A run that did not end as done ends with RUN_ERROR, whose
    code is the run's status.
    """
    conversation = _Conversation(thread_id, run_id, list(history), name)
    yield frame({"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id})
    async for event in events:
        for framed in frames(conversation.events_of(event), event.cursor):
            yield framed


class _Conversation:
    """The run so far: whether a message is open, and how many there were."""

    def __init__(
        self, thread_id: str, run_id: str, history: list[dict[str, Any]], name: str
    ) -> None:
        self._thread_id, self._run_id = thread_id, run_id
        self._history = history
        self._name = name
        self._count = 0
        self._is_open = False

    @property
    def _message_id(self) -> str:
        return f"{self._run_id}-{self._name}-{self._count}"

    def events_of(self, event: WatchEvent) -> list[dict[str, Any]]:
        if isinstance(event, DataEvent):
            return self._data(event.value)
        if isinstance(event, ResetEvent):
            return [
                *self._end_message(),
                {"type": "MESSAGES_SNAPSHOT", "messages": self._history},
            ]
        return [*self._end_message(), self._ending(event)]

    def _data(self, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, str):
            return [{"type": "CUSTOM", "name": self._name, "value": value}]
        if not value:
            # The protocol has no empty deltas.
            return []
        begin: list[dict[str, Any]] = []
        if not self._is_open:
            self._is_open = True
            self._count += 1
            begin = [
                {
                    "type": "TEXT_MESSAGE_START",
                    "messageId": self._message_id,
                    "role": "assistant",
                }
            ]
        content = {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message_id, "delta": value}
        return [*begin, content]

    def _end_message(self) -> list[dict[str, Any]]:
        if not self._is_open:
            return []
        self._is_open = False
        return [{"type": "TEXT_MESSAGE_END", "messageId": self._message_id}]

    def _ending(self, event: EndEvent) -> dict[str, Any]:
        if event.status == "done":
            return {
                "type": "RUN_FINISHED",
                "threadId": self._thread_id,
                "runId": self._run_id,
                "result": event.result,
            }
        return {"type": "RUN_ERROR", "message": why_ended(event), "code": event.status}
