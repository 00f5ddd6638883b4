"""Compare the text of a repeated step with what its earlier attempts have published."""

from __future__ import annotations

from typing import Any, NamedTuple


class Comparison(NamedTuple):
    """How a comparison ended."""

    continues: bool
    """Whether this attempt has all the text of the earlier ones, so that it continues their part.
    Otherwise it replaces the part."""
    values: list[Any]
    """What this attempt publishes now."""


class TextComparison:
    """The comparison of one attempt. It ends with the first difference, or with more text."""

    __slots__ = ("_expected", "_received", "count")

    def __init__(self, earlier: list[str]) -> None:
        self.count = len(earlier)
        """How many values the earlier attempts have published."""
        self._expected = "".join(earlier)
        """What they have published and this attempt has not received yet."""
        self._received: list[str] = []

    def receive(self, value: Any) -> Comparison | None:
        """Compare a value of this attempt. Return None while the texts are the same."""
        expected = self._expected
        if not isinstance(value, str):
            ended = self.end()
            return ended._replace(values=[*ended.values, value])
        if expected.startswith(value):
            self._received.append(value)
            self._expected = expected[len(value) :]
            return None
        if value.startswith(expected):
            return Comparison(continues=True, values=[value[len(expected) :]])
        return Comparison(continues=False, values=["".join(self._received) + value])

    def end(self) -> Comparison:
        """End the comparison because no more text follows."""
        if self._expected:
            return Comparison(continues=False, values=["".join(self._received)])
        return Comparison(continues=True, values=[])
