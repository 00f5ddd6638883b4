"""Fit the lines of `outlast show` to the screen."""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from outlast.cli.output import console
from outlast.engine.entry_text import TEXT_MAX

SHORT_MIN = 40
WRAPPED_MIN = 24
"""The narrowest column that words are wrapped in. They begin on a line of their own otherwise."""
INDENT = 6
WORD = re.compile(r"`[^`]*`\S*|\S+")
"""A word, or a whole command in backticks: a command broken into lines cannot be copied."""


class Screen(NamedTuple):
    value_width: int | None
    """To how many characters recorded values are cut. None: they are shown whole."""
    width: int | None
    """Where lines are wrapped. None: nowhere, so that a pipe gets one line per entry."""

    @classmethod
    def of(cls, *, full: bool) -> Screen:
        out = console()
        if full:
            return cls(None, None)
        if not out.is_terminal:
            return cls(TEXT_MAX, None)
        return cls(max(SHORT_MIN, out.width - 20), out.width)

    def hung(self, head: Text, text: Text) -> list[Text]:
        """Return the words after `head`, wrapped in the column where they begin."""
        if self.width is None or head.cell_len + text.cell_len <= self.width:
            return [head + text]
        indent = head.cell_len
        lines = []
        if self.width - indent < WRAPPED_MIN:
            indent = INDENT
            lines = [head]
        wrapped = text.wrap(console(), max(1, self.width - indent))
        for line in wrapped:
            lines.append((Text(" " * indent) if lines else head) + line)
        return lines

    def wrapped(self, text: str) -> list[Text]:
        """Return a sentence as lines. Commands in it, and indented lines, are not broken."""
        if self.width is None or text.startswith(" ") or cell_len(text) <= self.width:
            return [Text(text)]
        lines = [""]
        for word in WORD.findall(text):
            joined = f"{lines[-1]} {word}".lstrip()
            if lines[-1] and cell_len(joined) > self.width:
                lines.append(word)
            else:
                lines[-1] = joined
        return [Text(line) for line in lines]
