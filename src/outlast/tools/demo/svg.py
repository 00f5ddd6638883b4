"""Record the board for `--record` as one animated SVG, with a transcript.

The file needs nothing else to be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import outlast
from outlast.tools.demo.state import Event
from outlast.tools.demo.view import WIDTH, Frame, Line, event_line, plain

ROW = 18
COLUMN = 8.43
EDGE = 16
FRAME_SECONDS_MAX = 1.6
"""Longest time one frame is shown. Longer waits are cut."""
END_SECONDS = 14.0
"""How long the end is shown before the animation repeats."""
FRAMES_WANTED = 45
"""Target number of frames. There are more if more happens: no event is left out."""
COLOURS = {
    "plain": "#d4d4d4",
    "title": "#ffffff",
    "good": "#7ec699",
    "warn": "#e5c07b",
    "bad": "#f07178",
    "dim": "#7f848e",
}
STYLE = """
  text { white-space: pre; fill: #d4d4d4;
    font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
  .frame { visibility: hidden } .last { visibility: visible } .title { font-weight: bold }
"""


def picture(frames: Sequence[Frame], end: Sequence[Line], date: str) -> str:
    """Draw the frames in order and then the end, repeating.

    A viewer that prefers reduced motion sees only the end.
    """
    shown = _chosen(frames)
    rows = max(len(lines) for lines in (*(frame.lines for frame in shown), end))
    width = round(WIDTH * COLUMN + 2 * EDGE)
    height = rows * ROW + 2 * EDGE
    seconds = [min(after.at - one.at, FRAME_SECONDS_MAX) for one, after in pairwise(shown)]
    seconds += [FRAME_SECONDS_MAX, END_SECONDS] if shown else [END_SECONDS]
    groups = [_group(frame.lines, number) for number, frame in enumerate(shown)]
    return "\n".join(
        (
            (
                '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
            ),
            "<title>outlast demo</title>",
            (
                f"<desc>Recorded by outlast demo --record, Outlast {outlast.__version__}, "
                f"{escape(date)}. Its text is in the .txt file of the same name.</desc>"
            ),
            f"<style>{STYLE}{_colours()}{_motion(seconds)}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1e1f24"/>',
            *groups,
            _group(end, len(shown), last=True),
            "</svg>\n",
        )
    )


def transcript(events: Sequence[Event], end: Sequence[Line]) -> str:
    """Return what the demo prints without a terminal."""
    return "\n".join(["$ outlast demo", *map(event_line, events), "", plain(end), ""])


def _chosen(frames: Sequence[Frame]) -> list[Frame]:
    """Select the first and the last frame of each event, and some in between."""
    edges = {0, len(frames) - 1}
    for number in range(1, len(frames)):
        if frames[number].events != frames[number - 1].events:
            edges |= {number - 1, number}
    room = max(1, FRAMES_WANTED - len(edges))
    between = set(range(0, len(frames), max(1, len(frames) // room)))
    return [frame for number, frame in enumerate(frames) if number in edges | between]


def _group(lines: Sequence[Line], number: int, *, last: bool = False) -> str:
    rows = (_row(line, row) for row, line in enumerate(lines) if line)
    return f'<g class="frame{" last" if last else ""} f{number}">\n' + "\n".join(rows) + "\n</g>"


def _row(line: Line, row: int) -> str:
    words = "".join(
        f'<tspan class="{part.mood}">{escape(part.text)}</tspan>'
        if part.mood != "plain"
        else escape(part.text)
        for part in line
    )
    return f'<text x="{EDGE}" y="{EDGE + ROW * (row + 1) - 5}" xml:space="preserve">{words}</text>'


def _colours() -> str:
    return " ".join(f".{mood} {{ fill: {colour} }}" for mood, colour in COLOURS.items())


def _motion(seconds: Sequence[float]) -> str:
    """Return the CSS that shows each frame in its own part of the animation."""
    whole = sum(seconds)
    begin = 0.0
    rules = []
    for number, length in enumerate(seconds):
        here = 100 * begin / whole
        then = 100 * (begin + length) / whole
        before = "0% { visibility: hidden } " if number else ""
        after = "" if number == len(seconds) - 1 else f"{then:.2f}%, 100% {{ visibility: hidden }} "
        rules.append(
            f"@keyframes k{number} {{ {before}{here:.2f}% {{ visibility: visible }} {after}}}"
        )
        rules.append(f".f{number} {{ animation: k{number} {whole:.1f}s step-end infinite }}")
        begin += length
    return "\n@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}\n"
