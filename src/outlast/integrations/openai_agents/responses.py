"""Encode the responses and stream events of a model as JSON, and decode them.

Fields that the model did not set stay unset: the SDK sends a response back to the model as input,
and the API refuses some fields if they are null.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from typing import Any, cast

from agents import ModelResponse, Usage
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from outlast.api.context import current


@cache
def _items() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseOutputItem)


@cache
def _events() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


@cache
def _usage() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)


def encode_response(response: ModelResponse) -> dict[str, Any]:
    """Return a model's response as plain JSON."""
    return {
        "output": [_encode(item) for item in response.output],
        "usage": _usage().dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
        "request_id": response.request_id,
    }


def decode_response(recorded: dict[str, Any]) -> ModelResponse:
    """Return the response that `encode_response` was given."""
    return ModelResponse(
        output=[_decode(_items(), item) for item in recorded["output"]],
        usage=_usage().validate_python(recorded["usage"]),
        response_id=recorded["response_id"],
        request_id=recorded["request_id"],
    )


def encode_event(event: TResponseStreamEvent) -> Any:
    """Return a stream event as plain JSON."""
    return _encode(event)


def decode_event(recorded: Any) -> TResponseStreamEvent:
    """Return the event that `encode_event` was given."""
    return cast("TResponseStreamEvent", _decode(_events(), recorded))


def is_recorded(event: TResponseStreamEvent) -> bool:
    """Return whether a stream event is recorded.

    Deltas are not: the events that end an item repeat their text.
    """
    return not str(getattr(event, "type", "")).endswith(".delta")


def digest(value: Any) -> str:
    """Return a short text that is equal for equal values."""
    text = json.dumps(to_jsonable_python(value, fallback=str), sort_keys=True)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def record_cost(usage: Any) -> None:
    """Add the tokens of a response to the cost of the step that executes."""
    tokens = getattr(usage, "total_tokens", 0) or 0
    if tokens:
        current().cost(
            tokens=tokens,
            tokens_input=getattr(usage, "input_tokens", 0) or 0,
            tokens_output=getattr(usage, "output_tokens", 0) or 0,
        )


def _encode(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return value


def _decode(adapter: TypeAdapter[Any], recorded: Any) -> Any:
    """Validate leniently, as the client of the API does: an unknown item stays a dict."""
    try:
        return adapter.validate_python(recorded)
    except ValidationError:
        return recorded
