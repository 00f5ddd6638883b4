"""Map times to positions on an axis. Long idle times become short breaks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from outlast.codec.readable import span

IDLE_SHARE = 0.08
"""The share of the axis that one idle time may take, relative to all busy times."""
WIDTH_LEAST = 0.4
TICKS = 5
END_LABEL_LEFT = 78.0
"""Where the label of the axis's end may begin, in percent."""
STEPS = (1.0, 2.0, 5.0, 10.0)


class Place(NamedTuple):
    """A part of the axis, as SVG attributes."""

    x: str
    width: str


class Tick(NamedTuple):
    x: str
    label: str
    anchor: str = "start"
    """Which end of the label is at x, as the SVG attribute `text-anchor`."""


class Part(NamedTuple):
    began: float
    ended: float
    left: float
    right: float
    is_idle: bool


class TimeAxis:
    """An axis from the first to the last time of some intervals, in percent."""

    def __init__(self, busy: Sequence[tuple[float, float]], began: float, ended: float) -> None:
        self.began = began
        self.ended = max(ended, began + 1e-6)
        self.parts = _parts(busy, self.began, self.ended)
        self._starts = [part.began for part in self.parts]

    def x(self, at: float) -> float:
        """Return the position of a time, from 0 to 100."""
        at = min(max(at, self.began), self.ended)
        part = self.parts[max(0, bisect_right(self._starts, at) - 1)]
        share = (at - part.began) / (part.ended - part.began)
        return part.left + min(1.0, share) * (part.right - part.left)

    def place(self, began: float, ended: float) -> Place:
        """Return the position of an interval, at least wide enough to be visible."""
        left, right = self.x(began), self.x(ended)
        width = max(WIDTH_LEAST, right - left)
        return Place(_percent(min(left, 100.0 - width)), _percent(width))

    def at(self, at: float) -> str:
        """Return the position of a time as an SVG attribute."""
        return _percent(self.x(at))

    def ticks(self) -> list[Tick]:
        """Return round times, and how long each break is."""
        busy = sum(part.ended - part.began for part in self.parts if not part.is_idle)
        step = _step(busy / TICKS)
        found: list[Tick] = []
        for part in self.parts:
            if part.is_idle:
                continue
            number = int((part.began - self.began) / step)
            while (at := self.began + number * step) <= part.ended:
                if at >= part.began and self.x(at) < 92:
                    label = f"+{span(at - self.began)}" if number else "0"
                    found.append(Tick(_percent(self.x(at)), label))
                number += 1
        found = _apart(found)
        if self.parts[-1].is_idle:
            # A break has no ticks, so the last one would look like the end.
            end = Tick("100%", f"+{span(self.ended - self.began)}", "end")
            found = [*(tick for tick in found if float(tick.x[:-1]) < END_LABEL_LEFT), end]
        return found

    def breaks(self) -> list[tuple[Place, str]]:
        """Return the idle times, each with how long it was."""
        return [
            (Place(_percent(part.left), _percent(part.right - part.left)), span(length))
            for part in self.parts
            if part.is_idle and (length := part.ended - part.began)
        ]


def _parts(busy: Sequence[tuple[float, float]], began: float, ended: float) -> list[Part]:
    """Return busy and idle times in turn. An idle time is kept short only if it is long."""
    merged: list[list[float]] = []
    for start, end in sorted((max(began, a), min(ended, max(a, b))) for a, b in busy):
        if end < began or start > ended:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    total = sum(end - start for start, end in merged) or (ended - began)
    limit = IDLE_SHARE * total
    pieces: list[tuple[float, float, bool]] = []
    last = began
    for start, end in [*merged, [ended, ended]]:
        if start - last > limit:
            pieces.append((last, start, True))
        elif start > last:
            pieces.append((last, start, False))
        if end > start:
            pieces.append((start, end, False))
        last = max(last, end)
    if not pieces or all(idle for *_, idle in pieces):
        return [Part(began, ended, 0.0, 100.0, is_idle=False)]
    weights = [limit if idle else end - start for start, end, idle in pieces]
    scale = 100.0 / sum(weights)
    parts, left = [], 0.0
    for (start, end, idle), weight in zip(pieces, weights, strict=True):
        right = left + weight * scale
        parts.append(Part(start, end, left, right, idle))
        left = right
    return parts


def _step(least: float) -> float:
    size = 1e-3
    while True:
        for factor in STEPS:
            if factor * size >= least:
                return factor * size
        size *= 10


def _apart(ticks: list[Tick]) -> list[Tick]:
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or float(tick.x[:-1]) - float(kept[-1].x[:-1]) >= 9:
            kept.append(tick)
    return kept


def _percent(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".") + "%"
