"""Show the progress of an `each` or a `map`: one line on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
import time
from typing import TextIO

PAUSE_SECONDS = 0.2
NAME_LENGTH = 40
CLEAR = "\r\x1b[2K"

_lines: list[ProgressLine] = []
"""The line that is shown, if any. A terminal has one, and the first to come keeps it."""


class ProgressLine:
    def __init__(self, name: str, total: int | None) -> None:
        self._name = name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"
        self.total = total
        self._began = time.monotonic()
        self._printed_at = 0.0
        self.skipped = self.done = 0
        self._to: TextIO | None = (
            sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        )

    def skip(self, count: int) -> None:
        """Count items that were done in an earlier life."""
        self.skipped += count
        if self._to is not None and count:
            self._print()

    def add(self) -> None:
        """Count an item that was done now."""
        self.done += 1
        if self._to is not None:
            self._print()

    def text(self, seconds: float) -> str:
        past = self.skipped + self.done
        text = f"{self._name}: {past:,}" + (
            f"/{self.total:,} done" if self.total is not None else " done"
        )
        if not self.done or seconds <= 0:
            return text
        rate = self.done / seconds
        text += f", {rate:,.1f}/s"
        if self.total is not None and self.total > past:
            text += f", {_about((self.total - past) / rate)} left"
        return text

    def _print(self) -> None:
        now = time.monotonic()
        if now - self._printed_at < PAUSE_SECONDS:
            return
        if not _lines:
            _lines.append(self)
        if _lines[0] is self:
            from shutil import get_terminal_size

            self._printed_at = now
            columns = get_terminal_size().columns
            self._write(CLEAR + self.text(now - self._began)[: columns - 1])

    def close(self) -> None:
        """Remove the line. A repeat is harmless."""
        if self in _lines:
            _lines.remove(self)
            self._write(CLEAR)
        self._to = None

    def _write(self, text: str) -> None:
        try:
            if self._to is not None:
                self._to.write(text)
                self._to.flush()
        except (OSError, ValueError):
            # The terminal is gone. The work goes on.
            self._to = None


def _about(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"about {round(seconds / size)} {unit}"
    return f"about {max(1, round(seconds))} s"
