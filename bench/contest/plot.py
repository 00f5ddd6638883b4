"""Bars, as an SVG that needs nothing else: groups of them on one scale, with the range over the rounds as a whisker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from bench.markdown import figure
from bench.spread import Spread
from bench.svg_theme import BLUE, GREEN, GREY, GRID, INK, PAPER, SOFT, theme

WIDTH, LEFT, RIGHT, TOP = 860, 230, 110, 74
BAR, GAP, GROUP_GAP, FOOT = 18, 6, 34, 34
OURS, PEER, YARDSTICK = GREEN, BLUE, GREY


class Bar(NamedTuple):
    name: str
    spread: Spread | None
    """None: there is no figure; `words` say why."""
    kind: str = "peer"
    """"ours", "peer" or "raw"."""
    words: str = ""


def bars(
    title: str, unit: str, groups: Sequence[tuple[str, Sequence[Bar]]], *, logarithmic: bool = True
) -> str:
    """Draw one row per bar. On a logarithmic scale the same length is the same factor."""
    spreads = [bar.spread for _, group in groups for bar in group if bar.spread]
    ends = [end for spread in spreads for end in (spread.low, spread.high) if end > 0] or [1.0]
    scale = _Scale(min(ends), max(ends), logarithmic=logarithmic)
    parts, y = [_text(16, 28, title, size=16, weight="bold"), _text(16, 48, unit, color=SOFT)], TOP
    for name, group in groups:
        parts.append(_text(16, y + 4, name, weight="bold"))
        y += 16
        for bar in group:
            parts.append(_row(bar, y, scale))
            y += BAR + GAP
        y += GROUP_GAP - GAP
    bottom = y - GROUP_GAP + GAP + 4
    for value in scale.marks():
        x = scale.at(value)
        parts.insert(0, _line(x, TOP, x, bottom))
        parts.append(_text(x, bottom + 16, f"{value:,.10g}", anchor="middle", color=SOFT, size=11))
    height = bottom + FOOT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    font = f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}"'
    return "\n".join(
        [
            f"{head} {font}>",
            theme(),
            f'<rect width="{WIDTH}" height="{height:g}" fill="{PAPER}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


class _Scale:
    def __init__(self, low: float, high: float, *, logarithmic: bool) -> None:
        self.logarithmic = logarithmic
        self.low = 10 ** math.floor(math.log10(low * 0.999)) if logarithmic else 0.0
        self.high = high * (1.3 if logarithmic else 1.05)

    def at(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = value / self.high
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def marks(self) -> list[float]:
        if self.logarithmic:
            return [
                10.0**power
                for power in range(
                    round(math.log10(self.low)), math.floor(math.log10(self.high)) + 1
                )
            ]
        step = 10 ** math.floor(math.log10(self.high))
        step = step / 5 if self.high / step < 2 else step / 2 if self.high / step < 5 else step
        return [step * number for number in range(math.floor(self.high / step) + 1)]


def _row(bar: Bar, y: float, scale: _Scale) -> str:
    name = _text(LEFT - 10, y + BAR - 5, bar.name, anchor="end")
    if bar.spread is None:
        return name + _text(LEFT + 6, y + BAR - 5, bar.words, color=SOFT)
    color = {"ours": OURS, "raw": YARDSTICK}.get(bar.kind, PEER)
    end, low, high = (
        scale.at(value) for value in (bar.spread.median, bar.spread.low, bar.spread.high)
    )
    middle = y + BAR / 2
    return (
        name
        + f'<rect x="{LEFT}" y="{y:g}" width="{max(end - LEFT, 1):.1f}" height="{BAR}" fill="{color}"/>'
        + f'<line x1="{low:.1f}" y1="{middle:g}" x2="{high:.1f}" y2="{middle:g}" stroke="{INK}" stroke-width="1.5"/>'
        + _text(max(end, high) + 8, y + BAR - 5, bar.words or figure(bar.spread.median))
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    anchor: str = "start",
    weight: str = "normal",
    color: str = INK,
) -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GRID}"/>'
