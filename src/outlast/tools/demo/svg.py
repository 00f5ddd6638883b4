"""Record the board for `--record` as one animated SVG that needs no other file, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import accumulate, pairwise

from rich.text import Text

import outlast
from outlast.tools.demo.view import CAPTION, WIDTH, Event, State, board, event_line

ROW, COLUMN, EDGE, BAR = 18, 8.43, 16, 30
"""Sizes in pixels: a line, a character, the edge, and the bar of the window."""
FRAMES_MAX = 50
FRAME_SECONDS_MAX = 1.6
"""Longest time one frame is shown. Longer waits are cut."""
END_SECONDS = 14.0
"""How long the end is shown before the animation repeats."""
EVENTS_SHOWN = 14
TOP = 12
"""Lines of the board above the events. The claims take the place of the events at the end."""
STYLE = """
  text { white-space: pre; fill: #d4d4d4;
    font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
  .frame { visibility: hidden } .last { visibility: visible }
  .title { fill: #ffffff; font-weight: bold } .quiet { fill: #8b919c }
  .good { fill: #7ec699 } .warn { fill: #e5c07b } .bad { fill: #f07178; font-weight: bold }
"""
BUTTONS = """\
<circle cx="22" cy="18" r="5.5" fill="#f07178"/><circle cx="40" cy="18" r="5.5" fill="#e5c07b"/>\
<circle cx="58" cy="18" r="5.5" fill="#7ec699"/>"""


class Recording:
    """Keep every frame of the board that differs from the one before."""

    def __init__(self) -> None:
        self.frames: list[tuple[float, list[Text]]] = []
        """When each was shown, and its lines."""

    def show(self, state: State) -> None:
        lines = board(state, EVENTS_SHOWN)
        # Compare everything but the clock.
        if not self.frames or lines[1:] != self.frames[-1][1][1:]:
            self.frames.append((state.seconds, lines))

    def picture(self, end: Sequence[Text]) -> str:
        """Return an animation of the frames in order and then the end, which repeats.

        A viewer that prefers reduced motion sees only the end.
        """
        today = datetime.now(UTC).date()
        whole = self.frames[-1][0] if self.frames else 0.0
        period = max(whole / FRAMES_MAX, FRAME_SECONDS_MAX / 4)
        # The last frame of each period.
        chosen = list({int(frame[0] / period): frame for frame in self.frames}.values())
        seconds = [min(b - a, FRAME_SECONDS_MAX) for (a, _), (b, _) in pairwise(chosen)]
        seconds += [FRAME_SECONDS_MAX, END_SECONDS] if chosen else [END_SECONDS]
        frames = [lines for _, lines in chosen]
        last = [*(frames[-1][:TOP] if frames else ()), *end]
        groups = "\n".join(_group(lines, n, len(frames)) for n, lines in enumerate([*frames, last]))
        width = round(WIDTH * COLUMN + 2 * EDGE)
        height = max(map(len, (*frames, last))) * ROW + BAR + EDGE
        size = f'width="{width}" height="{height}"'
        about = f"Recorded by outlast demo --record, Outlast {outlast.__version__}, {today}."
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} viewBox="0 0 {width} {height}">
<title>outlast demo</title>
<desc>{CAPTION} {about} Its text is in the .txt file of the same name.</desc>
<style>{STYLE}{_motion(seconds)}</style>
<rect {size} rx="8" fill="#1e1f24"/>{BUTTONS}
{groups}
</svg>
"""


def transcript(events: Sequence[Event], end: Sequence[Text]) -> str:
    """Return what the demo prints without a terminal."""
    lines = [*map(event_line, events), Text(), *end]
    return "\n".join(["$ outlast demo", *(line.plain.rstrip() for line in lines), ""])


def _group(lines: Sequence[Text], number: int, last: int) -> str:
    rows = "\n".join(_row(line, row) for row, line in enumerate(lines) if line)
    name = "frame last" if number == last else "frame"
    return f'<g class="{name} f{number}">\n{rows}\n</g>'


def _row(line: Text, row: int) -> str:
    parts = ((span.style, escape(line.plain[span.start : span.end])) for span in line.spans)
    words = "".join(
        text if style == "plain" else f'<tspan class="{style}">{text}</tspan>'
        for style, text in parts
    )
    return f'<text x="{EDGE}" y="{BAR + ROW * (row + 1) - 5}" xml:space="preserve">{words}</text>'


def _motion(seconds: Sequence[float]) -> str:
    """Return the CSS that shows each frame in its own part of the animation."""
    whole = sum(seconds)
    bounds = [100 * at / whole for at in accumulate(seconds, initial=0.0)]
    rules = []
    for number, (here, then) in enumerate(pairwise(bounds)):
        before = "0% { visibility: hidden } " if number else ""
        after = f"{then:.2f}%, 100% {{ visibility: hidden }} " if number + 1 < len(seconds) else ""
        rules.append(
            f"@keyframes k{number} {{ {before}{here:.2f}% {{ visibility: visible }} {after}}}\n"
            f".f{number} {{ animation: k{number} {whole:.1f}s step-end infinite }}"
        )
    return "\n@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}\n"
