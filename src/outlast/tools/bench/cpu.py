"""Measure the CPU time that this process used and waited for."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")


class Cpu(NamedTuple):
    used: float
    """Seconds."""
    waited: float
    """Seconds its threads were ready while others had the CPUs.

    0.0 where the kernel does not report it.
    """

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.used - before.used, max(0.0, self.waited - before.waited))


def cpu(tasks: Path = TASKS) -> Cpu:
    waited = 0
    for task in tasks.glob("*/schedstat"):
        # A thread may have just ended, and some kernels do not report this.
        with suppress(OSError, ValueError, IndexError):
            waited += int(task.read_text().split()[1])
    return Cpu(time.process_time(), waited / 1e9)
