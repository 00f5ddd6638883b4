"""What this process has had of the CPUs, and what it has not."""

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
    """Seconds that its threads were ready to go on and others had the CPUs. 0.0 where no kernel tells."""

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.used - before.used, max(0.0, self.waited - before.waited))


def cpu(tasks: Path = TASKS) -> Cpu:
    waited = 0
    for task in tasks.glob("*/schedstat"):
        with suppress(
            OSError, ValueError, IndexError
        ):  # a thread that has just ended, a kernel that does not tell
            waited += int(task.read_text().split()[1])
    return Cpu(time.process_time(), waited / 1e9)
