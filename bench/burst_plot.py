"""The plot of a burst: an SVG, without and with the gentle start side by side, on the same scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from bench.burst_fleet import Outcome
from bench.svg_theme import BLUE, GREEN, GRID, INK, ORANGE, PAPER, RED, SOFT, theme

WIDTH, ROW, PANEL, GAP = 1000, 150, 400, 56
LEFT, TOP, BOTTOM = 78, 92, 46
BINS = 160
"""Moments across a panel; of each the highest value is drawn."""


def plot(columns: Sequence[tuple[str, Outcome]], title: str) -> str:
    """One column an outcome. Every row has one scale for all of them, so that they can be compared by eye."""
    end = max(_end(outcome) for _, outcome in columns)
    outcomes = [outcome for _, outcome in columns]
    limit = outcomes[0].scene.limit
    rows: list[tuple[str, float, Callable[[Outcome, _Panel], str]]] = [
        ("calls in flight at the model API", max([limit, *(o.peak for o in outcomes)]), _in_flight),
        (
            "calls rejected with 429, per second",
            max(_top(o.refused, end) for o in outcomes),
            _refused,
        ),
        (
            "runs started, per second",
            max(_top([*o.begun_returned, *o.begun_new], end) for o in outcomes),
            _begun,
        ),
        (
            "wait of a new run for its first step, in seconds",
            max(o.waits[-1] for o in outcomes),
            _waits,
        ),
    ]
    height = TOP + len(rows) * (ROW + GAP) - GAP + BOTTOM
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        theme(),
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        _text(LEFT, 28, title, size=16, weight="bold"),
    ]
    for column, (name, outcome) in enumerate(columns):
        x = LEFT + column * (PANEL + LEFT)
        parts.append(_text(x, 56, name, size=14, weight="bold"))
        for number, (label, top, draw) in enumerate(rows):
            y = TOP + number * (ROW + GAP)
            panel = _Panel(x, y, end, top)
            last = number == len(rows) - 1
            parts += [panel.frame(label, time_label=last), draw(outcome, panel)]
    return "\n".join([*parts, "</svg>", ""])


class _Panel:
    def __init__(self, x: float, y: float, end: float, top: float) -> None:
        self.x, self.y, self.end = x, y, end
        self.step = _round_step(max(top, 1.0) / 4)
        self.top = self.step * math.ceil(max(top, 1.0) * 1.02 / self.step)

    def at(self, seconds: float) -> float:
        return self.x + PANEL * min(seconds, self.end) / self.end

    def up(self, value: float) -> float:
        return self.y + ROW * (1 - value / self.top)

    def frame(self, label: str, *, time_label: bool) -> str:
        parts = [_text(self.x, self.y - 9, label, color=SOFT)]
        for number in range(round(self.top / self.step) + 1):
            value = number * self.step
            y = self.up(value)
            parts.append(_line(self.x, y, self.x + PANEL, y, SOFT if number == 0 else GRID))
            parts.append(
                _text(self.x - 8, y + 4, f"{value:,.10g}", anchor="end", color=SOFT, size=11)
            )
        step = _round_step(self.end / 6)
        for number in range(int(self.end / step) + 1):
            x, foot = self.at(number * step), self.y + ROW
            parts.append(_line(x, foot, x, foot + 4, SOFT))
            parts.append(
                _text(x, foot + 17, f"{number * step:g}", anchor="middle", color=SOFT, size=11)
            )
        if time_label:
            middle, foot = self.x + PANEL / 2, self.y + ROW + 36
            parts.append(
                _text(
                    middle, foot, "seconds since the new fleet started", anchor="middle", color=SOFT
                )
            )
        return "\n".join(parts)

    def bars(
        self, counts: Sequence[float], color: str, below: Sequence[float] | None = None
    ) -> str:
        """One a second."""
        parts = []
        for second, count in enumerate(counts):
            foot = below[second] if below else 0.0
            if count:
                x, y = self.at(second), self.up(foot + count)
                width = max(1.0, self.at(second + 1) - x - 0.6)
                tall = max(0.8, self.up(foot) - y)
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall:.1f}" fill="{color}"/>'
                )
        return "\n".join(parts)


def _in_flight(outcome: Outcome, panel: _Panel) -> str:
    points, tops = [], _tops(outcome.busy, panel.end)
    for number, count in enumerate(tops):
        x = panel.at((number + 0.5) * panel.end / len(tops))
        points.append(f"{x:.1f},{panel.up(count):.1f}")
    left, right = (f"{panel.at(edge):.1f},{panel.up(0):.1f}" for edge in (0.0, panel.end))
    line, limit = " ".join(points), outcome.scene.limit
    return "\n".join(
        [
            f'<polygon points="{left} {line} {right}" fill="{BLUE}" fill-opacity="0.15"/>',
            f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="1.6"/>',
            _line(panel.x, panel.up(limit), panel.x + PANEL, panel.up(limit), RED, dash="5 4"),
            _text(
                panel.x + PANEL,
                panel.up(limit) - 5,
                f"limit {limit:,}",
                anchor="end",
                color=RED,
                size=11,
            ),
            _note(panel, f"peak {outcome.peak:,}"),
        ]
    )


def _refused(outcome: Outcome, panel: _Panel) -> str:
    return panel.bars(_by_second(outcome.refused, panel.end), RED) + _note(
        panel, f"{len(outcome.refused):,} in total"
    )


def _begun(outcome: Outcome, panel: _Panel) -> str:
    returned = _by_second(outcome.begun_returned, panel.end)
    new = _by_second(outcome.begun_new, panel.end)
    x, y = panel.x + PANEL - 118, panel.y + 22
    return "\n".join(
        [
            panel.bars(returned, ORANGE),
            panel.bars(new, GREEN, below=returned),
            f'<rect x="{x}" y="{y}" width="10" height="10" fill="{ORANGE}"/>',
            _text(x + 15, y + 9, "returned", color=SOFT, size=11),
            f'<rect x="{x + 72}" y="{y}" width="10" height="10" fill="{GREEN}"/>',
            _text(x + 87, y + 9, "new", color=SOFT, size=11),
            _note(panel, f"at most {max(map(sum, zip(returned, new, strict=True))):,.0f}"),
        ]
    )


def _waits(outcome: Outcome, panel: _Panel) -> str:
    dots = [
        f'<circle cx="{panel.at(at):.1f}" cy="{panel.up(wait):.1f}" r="1.8" fill="{GREEN}" fill-opacity="0.6"/>'
        for at, wait in outcome.new_waits
    ]
    return "\n".join([*dots, _note(panel, f"longest {outcome.waits[-1]:.2f} s")])


def _note(panel: _Panel, text: str) -> str:
    return _text(panel.x + PANEL, panel.y + 12, text, anchor="end", weight="bold", halo=True)


def _tops(busy: Sequence[tuple[float, int]], end: float) -> list[int]:
    """The highest number in each of the moments."""
    tops, current, index = [], 0, 0
    for number in range(BINS):
        until, top = (number + 1) * end / BINS, current
        while index < len(busy) and busy[index][0] < until:
            current = busy[index][1]
            top = max(top, current)
            index += 1
        tops.append(top)
    return tops


def _by_second(times: Sequence[float], end: float) -> list[float]:
    counts = [0.0] * math.ceil(end)
    for at in times:
        counts[min(int(at), len(counts) - 1)] += 1
    return counts


def _top(times: Sequence[float], end: float) -> float:
    return max(_by_second(times, end))


def _end(outcome: Outcome) -> float:
    return outcome.busy[-1][0]


def _round_step(least: float) -> float:
    """1, 2 or 5 with some zeros, and not less than this."""
    scale = 10.0 ** math.floor(math.log10(least))
    return next(part * scale for part in (1, 2, 5, 10) if part * scale >= least * 0.999)


def _line(x1: float, y1: float, x2: float, y2: float, color: str, *, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="1"{dashed}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    color: str = INK,
    size: int = 12,
    weight: str = "normal",
    halo: bool = False,
) -> str:
    around = f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-size="{size}" '
        f'font-weight="{weight}"{around}>{escape(text)}</text>'
    )
