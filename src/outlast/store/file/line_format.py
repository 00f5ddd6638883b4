"""Encode and decode a line: one JSON object that ends with a CRC-32 of everything before it.

    {"line": 3, "commit": 17, "at": 1700000000.5, "insert": "entries",
     "row": {"run": 12, "seq": 1, …}, "crc": "1c291ca3"}

(It is one line in the file.) Texts that are JSON themselves (a step's value, a run's arguments) are
embedded as JSON, character by character as they were given. A reader of the file sees no escaped
text, and reading returns the exact text.

Some texts cannot be embedded and become `{"$text": "…"}`: text that is not JSON, JSON with a line
break between its tokens, a JSON null (it could be taken for SQL's), and JSON nested too deeply for
some readers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from functools import cache
from itertools import accumulate
from typing import Any
from zlib import crc32

JSON_COLUMNS = frozenset(
    {"args", "value", "error", "cost", "report", "queues", "workflows", "undoing", "tokens"}
)
"""TEXT columns that are written as JSON. Others are written as strings."""

_TAIL = re.compile(rb', "crc": "([0-9a-f]{8})"}\Z')
_TAIL_SIZE = 20
_TEXT, _HEX = _MARKS = ('{"$text": ', '{"$hex": ')
_NAME = re.compile(r'"(\w+)": ')
_DEPTH_MAX = 100
"""The deepest nesting of JSON that is embedded as it is. What a reader can parse depends on the
reader and on its stack.
"""
_INFINITE = (math.inf, -math.inf)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NESTING = {"[": 1, "{": 1, "]": -1, "}": -1}


class Damaged(ValueError):
    """A line differs from what was written."""


def _refuse(name: str) -> None:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse)
quote = json.JSONEncoder(ensure_ascii=False).encode


def with_crc(body: str) -> bytes:
    """Return the line, without its line break, of an object that lacks its closing brace."""
    data = body.encode()
    return b'%b, "crc": "%08x"}' % (data, crc32(data))


def check_crc(line: bytes) -> str:
    """Return the object of a line, without its closing brace. Raise Damaged if the checksum
    differs.
    """
    found = _TAIL.search(line[-_TAIL_SIZE:])
    body = line[:-_TAIL_SIZE]
    if found is None or int(found[1], 16) != crc32(body):
        raise Damaged("its checksum is not that of its content")
    return body.decode()


def number(value: float) -> str:
    """Return a number as JSON. Infinity becomes a number too large for a float."""
    if value in _INFINITE:
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def encode_row(row: Mapping[str, Any], json_columns: Collection[str]) -> str:
    return (
        "{"
        + ", ".join(
            f'"{name}": {_encode(value, name in json_columns)}' for name, value in row.items()
        )
        + "}"
    )


def _encode(value: Any, as_json: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return _embed(value) if as_json else quote(value)
    return f'{_HEX}"{value.hex()}"}}' if isinstance(value, bytes) else number(value)


def _embed(text: str) -> str:
    plain = text != "null" and "\n" not in text and "\r" not in text and not text.startswith(_MARKS)
    return text if plain and _is_json(text) else f"{_TEXT}{quote(text)}}}"


def _is_json(text: str) -> bool:
    if _is_deep(text):
        return False
    try:
        return _DECODER.raw_decode(text)[1] == len(text)
    except ValueError:
        return False


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEPTH_MAX:
        return False
    steps = (_NESTING[mark] for mark in _STRING.sub("", text) if mark in _NESTING)
    return max(accumulate(steps), default=0) > _DEPTH_MAX


@cache
def _names(json_columns: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for the start of a JSON column. Without JSON columns it matches nothing."""
    return (
        re.compile(f'"({"|".join(sorted(json_columns))})": ')
        if json_columns
        else re.compile(r"(?!)")
    )


def _json_column(value: Any, raw: str) -> str | bytes:
    if raw.startswith(_MARKS):
        return _plain_column(value) if raw.startswith(_HEX) else str(value["$text"])
    return raw


def _plain_column(value: Any) -> Any:
    return bytes.fromhex(value["$hex"]) if isinstance(value, dict) else value


class Scanner:
    """Read what `with_crc` was given, from left to right. Raise Damaged for anything else."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def take(self, literal: str) -> bool:
        """Skip these characters if they come next, and return whether they did."""
        found = self._text.startswith(literal, self._at)
        self._at += len(literal) if found else 0
        return found

    def expect(self, literal: str) -> None:
        if not self.take(literal):
            raise Damaged(f"{literal!r} is missing at character {self._at + 1}")

    def name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise Damaged(f"a name is missing at character {self._at + 1}")
        self._at = found.end()
        return found[1]

    def value(self) -> Any:
        return self._decode()[0]

    def integer(self) -> int:
        value = self.value()
        if not isinstance(value, int):
            raise Damaged(f"a whole number is missing before character {self._at + 1}")
        return value

    def text(self) -> str:
        value = self.value()
        if not isinstance(value, str):
            raise Damaged(f"a text is missing before character {self._at + 1}")
        return value

    def raw(self) -> str:
        """Return the next value's JSON text."""
        return self._decode()[1]

    def row(self, json_columns: frozenset[str]) -> dict[str, Any]:
        """Return the columns of a row.

        JSON columns are found by their names: no text before the first of them, or between two of
        them, has an unescaped quotation mark. The columns before, between and after them are parsed
        together.
        """
        row: dict[str, Any] = {}
        self.expect("{")
        for found in iter(lambda: _names(json_columns).search(self._text, self._at), None):
            row |= self._plain(found.start())
            self._at = found.end()
            value, raw = self._decode()
            row[found[1]] = value if value is None else _json_column(value, raw)
            if self.take("}"):
                return row
            self.expect(", ")
        row |= self._plain(len(self._text) - 1)
        self.expect("}")
        return row

    def _plain(self, end: int) -> dict[str, Any]:
        """Return the columns from here to `end`, none of which is a JSON column."""
        text = self._text[self._at : end].removesuffix(", ")
        self._at = end
        try:
            columns = _DECODER.decode(f"{{{text}}}")
        except ValueError as error:
            raise Damaged(f"before character {end + 1}: {error}") from None
        if _HEX in text:
            columns = {name: _plain_column(value) for name, value in columns.items()}
        return dict(columns)

    def end(self) -> None:
        if self._at != len(self._text):
            raise Damaged(f"there is more than expected from character {self._at + 1} on")

    def _decode(self) -> tuple[Any, str]:
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except ValueError as error:
            raise Damaged(f"no JSON value at character {self._at + 1}: {error}") from None
        raw, self._at = self._text[self._at : end], end
        return value, raw
