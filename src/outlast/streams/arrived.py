"""Hold the received text of a stream, and record it as a step's progress."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Generic, NamedTuple, TypeVar

from outlast.codec import plain_json

C = TypeVar("C", str, bytes)


class Arrived(NamedTuple):
    """The text received up to one moment.

    `chunks` only grows, so its first `length` items never change. Keeping this costs nothing,
    however long the text.
    """

    chunks: list[Any]
    length: int = 0
    cursor: str = "null"
    """As JSON."""
    complete: bool = False


class ArrivedCodec:
    """Encode what has arrived as JSON. Bytes become base64."""

    def __init__(self, type: type[Any]) -> None:
        self._type = type

    def encode(self, value: Arrived) -> str:
        whole = self._type().join(value.chunks[: value.length])
        text = plain_json.encode(whole if self._type is str else b64encode(whole).decode())
        complete = "true" if value.complete else "false"
        return f'{{"{self._type.__name__}":{text},"cursor":{value.cursor},"complete":{complete}}}'

    def decode(self, text: str) -> Arrived:
        saved = json.loads(text)
        whole = saved.get(self._type.__name__)
        # The code has changed and now wants the other type.
        if whole is None:
            return Arrived([])
        chunk = whole if self._type is str else b64decode(whole)
        return Arrived([chunk], 1, plain_json.encode(saved["cursor"]), saved["complete"])

    def round_trip(self, value: Arrived) -> tuple[str, Arrived]:
        text = self.encode(value)
        return text, self.decode(text)


class ReceivedText(Generic[C]):
    """The chunks of one attempt, including the text it resumes from, and the last cursor."""

    __slots__ = ("_joined", "_type", "chunks", "cursor")

    def __init__(self, type: type[C]) -> None:
        self._type: Any = type
        self.clear()

    def clear(self) -> None:
        self.chunks: list[C] = []
        self.cursor = "null"
        """As JSON."""
        self._joined: tuple[int, C] = (0, self._type())
        """How many chunks were joined, and the text that they form."""

    def restore(self, whole: C, cursor: str) -> None:
        """Begin with the text of an earlier attempt."""
        self.chunks = [whole]
        self.cursor = cursor

    @property
    def text(self) -> C:
        count, whole = self._joined
        if count < len(self.chunks):
            whole = whole + self._type().join(self.chunks[count:])
            self._joined = (len(self.chunks), whole)
        return whole

    def snapshot(self, *, complete: bool) -> Arrived:
        return Arrived(self.chunks, len(self.chunks), self.cursor, complete)
