"""Encode what a viewer receives as the UI message stream of the Vercel AI SDK.

    @web.get("/chat/{run_id}")
    async def chat(run_id: str) -> StreamingResponse:
        return StreamingResponse(
            encode(app.watch(run_id, "answer"), run_id),
            media_type="text/event-stream", headers=HEADERS,
        )

`useChat` of the AI SDK 5 and later reads it. Strings become text. Other values become data parts.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from outlast.api.watch import DataEvent, EndEvent, ResetEvent, WatchEvent
from outlast.integrations.viewer_events import frame, frames, why_ended

__all__ = ["HEADERS", "encode"]

HEADERS = {"x-vercel-ai-ui-message-stream": "v1", "cache-control": "no-store"}
"""The headers of the response, besides its content type, `text/event-stream`."""


async def encode(
    events: AsyncIterable[WatchEvent], message_id: str, name: str = "answer"
) -> AsyncIterator[str]:
    """Yield the server-sent events of one message of the assistant.

    The protocol cannot take text back. So a reset ends the text, adds a part `data-reset`, and
    begins another text: a page shows the parts after the last `data-reset`. Values that are not
    strings become parts `data-NAME`. A run that failed ends with an `error`, one that was cancelled
    with an `abort`.
    """
    message = _Message(name)
    for part in message.begin(message_id):
        yield frame(part)
    async for event in events:
        for framed in frames(message.parts_of(event), event.cursor):
            yield framed
    yield "data: [DONE]\n\n"


class _Message:
    """The message so far: whether a text is open, and how many there were."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._is_open = False

    @property
    def _text_id(self) -> str:
        return f"{self._name}-{self._count}"

    def begin(self, message_id: str) -> list[dict[str, Any]]:
        return [{"type": "start", "messageId": message_id}, {"type": "start-step"}]

    def parts_of(self, event: WatchEvent) -> list[dict[str, Any]]:
        if isinstance(event, DataEvent):
            return self._data(event.value)
        if isinstance(event, ResetEvent):
            reset = {"type": "data-reset", "id": f"reset-{self._count}", "data": {}}
            return [*self._end_text(), reset]
        return [*self._end_text(), *_ending(event)]

    def _data(self, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, str):
            return [*self._end_text(), {"type": f"data-{self._name}", "data": value}]
        begin: list[dict[str, Any]] = []
        if not self._is_open:
            self._is_open = True
            self._count += 1
            begin = [{"type": "text-start", "id": self._text_id}]
        return [*begin, {"type": "text-delta", "id": self._text_id, "delta": value}]

    def _end_text(self) -> list[dict[str, Any]]:
        if not self._is_open:
            return []
        self._is_open = False
        return [{"type": "text-end", "id": self._text_id}]


def _ending(event: EndEvent) -> list[dict[str, Any]]:
    if event.status == "done":
        return [{"type": "finish-step"}, {"type": "finish"}]
    if event.status == "cancelled":
        return [{"type": "abort", "reason": event.reason or "cancelled"}]
    return [{"type": "error", "errorText": why_ended(event)}]
