"""Show recorded values within a budget for the whole page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from markupsafe import escape

from outlast.codec.readable import readable
from outlast.http.rest.masking import MASKED

PAGE_BYTES = 30_000
"""How much escaped text of values a page has."""
VALUE_BYTES = 2_000
LEAST_BYTES = 60
"""What every value gets, even when the budget is spent."""
NAME_LENGTH = 120
ROW_BYTES = 700
"""About how many bytes of HTML a row of a list has besides its texts."""

T = TypeVar("T", bound=Mapping[str, Any])


class Excerpt(NamedTuple):
    """A value as a page shows it."""

    text: str
    is_masked: bool = False
    is_cut: bool = False
    size: int = 0
    """The characters of the whole text."""


class Budget:
    """Cut values so that a page stays small, however much was recorded."""

    def __init__(self, total: int = PAGE_BYTES, each: int = VALUE_BYTES) -> None:
        self._left = total
        self._each = each

    def show(self, value: Any) -> Excerpt:
        """Return a value as text, cut to what is left of the budget."""
        if value == MASKED:
            return Excerpt("", is_masked=True)
        text = text_of(value)
        bytes_max = max(LEAST_BYTES, min(self._each, self._left))
        cut, used = _cut(text, bytes_max)
        self._left -= used
        return Excerpt(cut, is_cut=len(cut) < len(text), size=len(text))


def fitting(rows: Sequence[T], bytes_max: int, links: Sequence[str] = ()) -> list[T]:
    """Return the first rows of a list whose HTML fits into `room` bytes, at least one.

    `links` are the fields that occur in addresses, where they are never cut.
    """
    found: list[T] = []
    for row in rows:
        whole = sum(_link_bytes(str(row.get(name, ""))) for name in links)
        bytes_max -= ROW_BYTES + whole + _row_bytes(row)
        if found and bytes_max < 0:
            break
        found.append(row)
    return found


def _link_bytes(text: str) -> int:
    return len(quote(text, safe=""))


def _row_bytes(value: Any) -> int:
    """Return about how many bytes the texts of a row have in a page."""
    if isinstance(value, str):
        return _html_bytes(value[:NAME_LENGTH])
    if isinstance(value, dict):
        return sum(map(_row_bytes, value.values()))
    return sum(map(_row_bytes, value[:20])) if isinstance(value, list) else 0


def text_of(value: Any) -> str:
    """Return a value for people: text as it is, anything else as JSON. Escape what is invisible."""
    return printable(value) if isinstance(value, str) else readable(value, indent=2)


def printable(text: str) -> str:
    """Escape every unprintable character but line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}" for char in text
    )


def clip(text: Any, length: int = NAME_LENGTH) -> str:
    """Return a name, cut to `length` characters, without unprintable ones."""
    whole = str(text)
    clipped = printable(whole[:length]).replace("\n", " ")
    return clipped if len(whole) <= length else clipped[: length - 1] + "…"


def plain(document: Any) -> str:
    """Return a recorded text. A hidden one is empty."""
    return document if isinstance(document, str) else ""


def _cut(text: str, bytes_max: int) -> tuple[str, int]:
    """Return the beginning of a text that has at most `room` bytes of HTML, and these bytes."""
    head = text[:bytes_max]
    size = _html_bytes(head)
    while size > bytes_max:
        head = head[: max(1, len(head) * bytes_max // size - 1)]
        size = _html_bytes(head)
        if len(head) <= 1:
            break
    return head, size


def _html_bytes(text: str) -> int:
    return len(str(escape(text)).encode())
