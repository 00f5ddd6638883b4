"""Record what nodes write, what people answer and what a graph returns.

Plain JSON is recorded as it is, and messages as their fields, so that a journal can be read. All
other values are encoded by LangGraph's serializer.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from outlast.errors import Unrecordable

MESSAGE = "$message"
"""The only key of a recorded message. Its value has the fields and the kind."""
ENCODED = "$langgraph"
"""The only key of a value that the serializer encoded: its type, and its bytes in base64."""
TUPLE = "$tuple"

_KINDS: dict[type, str] = {
    HumanMessage: "human",
    AIMessage: "ai",
    SystemMessage: "system",
    ToolMessage: "tool",
}
_CLASSES = {kind: found for found, kind in _KINDS.items()}
_SCALARS = (type(None), bool, int, float, str)
_MARKS = frozenset({MESSAGE, ENCODED, TUPLE})


class ValueCodec:
    """Turn values of a graph into plain JSON and back."""

    def __init__(self, serde: SerializerProtocol | None = None) -> None:
        self._serde = serde or JsonPlusSerializer()

    def encode(self, value: Any) -> Any:
        """Return a value as plain JSON. Raise Unrecordable if the serializer cannot encode it."""
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is list:
            return [self.encode(item) for item in value]
        if kind is tuple:
            return {TUPLE: [self.encode(item) for item in value]}
        if kind is dict and _is_plain_dict(value):
            return {name: self.encode(item) for name, item in value.items()}
        if kind in _KINDS:
            fields = value.model_dump(exclude_defaults=True)
            fields.pop("type", None)
            return {MESSAGE: {"kind": _KINDS[kind], **self.encode(fields)}}
        try:
            name, data = self._serde.dumps_typed(value)
        except Exception as error:
            raise Unrecordable(
                f"a value of type {kind.__qualname__} cannot be recorded ({error}). Write plain "
                "data, messages, dataclasses or pydantic models to the state of a graph."
            ) from error
        return {ENCODED: [name, base64.b64encode(data).decode()]}

    def decode(self, recorded: Any) -> Any:
        """Return the value that `encode` has recorded."""
        if type(recorded) is list:
            return [self.decode(item) for item in recorded]
        if type(recorded) is not dict:
            return recorded
        if len(recorded) == 1:
            if TUPLE in recorded:
                return tuple(self.decode(item) for item in recorded[TUPLE])
            if MESSAGE in recorded:
                fields = {name: self.decode(value) for name, value in recorded[MESSAGE].items()}
                return _CLASSES[fields.pop("kind")](**fields)
            if ENCODED in recorded:
                name, data = recorded[ENCODED]
                return self._serde.loads_typed((name, base64.b64decode(data)))
        return {name: self.decode(value) for name, value in recorded.items()}


def _is_plain_dict(value: dict[Any, Any]) -> bool:
    return all(type(name) is str for name in value) and not (
        len(value) == 1 and next(iter(value)) in _MARKS
    )


def own_copy(value: Any) -> Any:
    """Return a copy of a node's input, so that a node cannot change the graph's state.

    A change would be missing in the next life, in which the node does not execute again. Containers
    and models are copied, other objects are shared.
    """
    kind = type(value)
    if kind is dict:
        return {name: own_copy(item) for name, item in value.items()}
    if kind is list:
        return [own_copy(item) for item in value]
    if kind is tuple:
        return tuple(own_copy(item) for item in value)
    if kind is set:
        return set(value)
    if isinstance(value, BaseMessage):
        return value.model_copy()
    if isinstance(value, BaseModel):
        fields = {name: own_copy(item) for name, item in vars(value).items()}
        return value.model_copy(update=fields)
    if hasattr(value, "__dataclass_fields__"):
        return copy.copy(value)
    return value


def give_ids(value: Any, new_id: Callable[[], str]) -> None:
    """Set the ids of the messages in a value that have none.

    LangGraph would set random ones each time it merges them into the state.
    """
    if isinstance(value, BaseMessage):
        if not value.id:
            value.id = new_id()
    elif isinstance(value, (list, tuple)):
        for item in value:
            give_ids(item, new_id)
    elif isinstance(value, dict):
        for item in value.values():
            give_ids(item, new_id)
