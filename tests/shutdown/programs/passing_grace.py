"""Let the grace of a process pass when a test says so.

The drain and its deadline read a clock that is ahead of the real one by the seconds in a file. A test waits
until all has happened that must happen within the grace, however slow the machine is, and then ends the grace.
The timer and the guard behind the deadline have the real time: test_exit_timer.py and test_watchdog_process.py.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace

SETTINGS = {"grace": 600, "checkpoint_reserve": 200, "exit_reserve": 200}
UNTIL_STEPS_STOP = 250
"""Steps are asked to stop after 200 s."""
UNTIL_STEPS_ARE_LEFT = 450
"""Steps that did not stop are left behind after 400 s."""
UNTIL_THE_END = 650
"""The process ends after 600 s."""

LOOK_SECONDS = 0.05


def install(file: str) -> None:
    """Give the drain and the deadline of this process a clock that is ahead by the seconds in this file."""
    from outlast.execution import shutdown_state
    from outlast.shutdown import exit_timer, remaining_work

    def monotonic() -> float:
        try:
            return time.monotonic() + float(Path(file).read_text())
        except FileNotFoundError:
            return time.monotonic()

    clock = SimpleNamespace(monotonic=monotonic)
    remaining_work.time = exit_timer.time = shutdown_state.time = clock
    exit_timer._WAIT_SECONDS_MAX = LOOK_SECONDS


def let_pass(file: Path, seconds: float) -> None:
    """Let this many seconds pass in the process that reads this file."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    new.rename(file)


if "PASSED" in os.environ:
    install(os.environ["PASSED"])
