"""Show the progress of an experiment: a live screen on a terminal, lines elsewhere.

The verdict is in the report.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.tools.chaos.faults import FaultInjector
    from outlast.tools.chaos.fleet import Fleet
    from outlast.tools.chaos.load_generator import LoadGenerator

FRAME_SECONDS = 0.25
LINE_SECONDS = 5.0
FAULTS_SHOWN = 8
MARKS = {"starting": "…", "alive": "●", "draining": "◐", "stopped": "‖", "dead": "x"}
COLOURS = {
    "starting": "cyan",
    "alive": "green",
    "draining": "yellow",
    "stopped": "magenta",
    "dead": "red",
}


class View:
    """Show nothing. `phase` is the current phase of the experiment."""

    def __init__(self) -> None:
        self.phase = "starting"

    def show(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> None:
        """Show the current state. Called often."""

    def report(self, text: str) -> None:
        """Print one line."""

    def close(self) -> None:
        """Restore the terminal."""


class Lines(View):
    """Print each fault as it falls, and the state of the runs every few seconds."""

    def __init__(self, file: Any = None) -> None:
        super().__init__()
        self._file = sys.stdout if file is None else file
        self._reported = 0
        self._due = 0.0

    def show(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> None:
        for fault in faults.injected[self._reported :]:
            self.report(
                f"{fault.at:7.1f} s  {fault.kind:<8}{_lanes(fault.lanes):<8}{fault.description}"
            )
        self._reported = len(faults.injected)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            clock = "" if self.phase == "starting" else f"{time.monotonic() - fleet.began:7.1f} s"
            self.report(f"{clock:>9}  {_stand(self.phase, fleet, load, faults)}")

    def report(self, text: str) -> None:
        print(text, file=self._file, flush=True)


class Screen(View):
    """Redraw one screen on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console = Console(markup=False, highlight=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._due = 0.0

    def show(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + FRAME_SECONDS
            self._live.update(self._frame(fleet, load, faults), refresh=True)

    def _frame(self, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> Any:
        from rich.console import Group
        from rich.text import Text

        text = Text(no_wrap=True, overflow="ellipsis")
        last = Text(no_wrap=True, overflow="ellipsis")
        clock = "" if self.phase == "starting" else f"  {time.monotonic() - fleet.began:.0f} s"
        text.append(f"outlast chaos  {self.phase}{clock}\n\n", style="bold")
        for member in fleet.there():
            since = time.monotonic() - member.since
            text.append(
                f"  {member.lane + 1:>3} {MARKS[member.state]} ", style=COLOURS[member.state]
            )
            text.append(f"{member.state:<9}{since:6.1f} s  process {member.pid}\n")
        for fault in faults.injected[-FAULTS_SHOWN:]:
            last.append(
                f"{fault.at:7.1f} s  {fault.kind:<8}{_lanes(fault.lanes):<8}{fault.description}\n"
            )
        return Group(text, Text(f"{_stand(self.phase, fleet, load, faults)}\n"), last)

    def report(self, text: str) -> None:
        self._live.console.print(text)

    def close(self) -> None:
        self._live.stop()


def _stand(phase: str, fleet: Fleet, load: LoadGenerator, faults: FaultInjector) -> str:
    seen = load.seen
    kinds = Counter(fault.kind for fault in faults.injected)
    away = "  the store is unavailable" if load.away else ""
    struck = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    return (
        f"{phase}: {len(fleet.there('alive'))} alive of {fleet.size}, {len(load.acknowledged)} "
        f"submitted, {seen.queued} queued, {seen.running} running, "
        f"{seen.waiting} waiting, {seen.parked} parked, {seen.dead} dead; faults: {struck}{away}"
    )


def _lanes(lanes: tuple[int, ...]) -> str:
    return ",".join(str(lane + 1) for lane in lanes[:3]) + ("…" if len(lanes) > 3 else "")
