"""Keep what Pydantic AI makes by itself equal in every life: timestamps, usage and identities."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from json import dumps
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest

from outlast.api.context import current

_VARYING = ("timestamp", "run_id", "conversation_id")
"""The fields of a message that differ when a step's body is repeated."""
_COSTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Timestamps:
    """Set the timestamps of the requests of one run of an agent, each once.

    Pydantic AI takes them from the system's clock. A history that is passed on to a step would then
    differ in the next life. Responses need no change: they are recorded.
    """

    def __init__(self) -> None:
        # Requests are not hashable. The values keep the ids valid.
        self._stamped: dict[int, ModelRequest] = {}

    def stamp(self, messages: Sequence[ModelMessage], run_id: str | None, time: datetime) -> None:
        """Set the timestamps of the new requests at the end of the messages."""
        for message in reversed(messages):
            if not isinstance(message, ModelRequest):
                continue
            if id(message) in self._stamped or message.run_id != run_id:
                return
            self._stamped[id(message)] = message
            message.timestamp = time
            for part in message.parts:
                if hasattr(part, "timestamp"):
                    part.timestamp = time


def digest(messages: Sequence[ModelMessage]) -> str:
    """Return a text that identifies a request to a model, in whichever life it is made."""
    plain = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    for message in plain:
        for part in (message, *message["parts"]):
            for name in _VARYING:
                part.pop(name, None)
    text = dumps(plain, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def record_cost(payload: Any) -> None:
    """Record the tokens of an encoded response as the cost of the step that executes."""
    response = payload.get("response", payload) if isinstance(payload, dict) else {}
    usage = response.get("usage") or {}
    counts = {name: usage[name] for name in _COSTS if usage.get(name)}
    if counts:
        total = counts.get("input_tokens", 0) + counts.get("output_tokens", 0)
        current().cost(tokens=total, **counts)
