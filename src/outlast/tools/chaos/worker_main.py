"""Run one worker of an experiment.

`python -m outlast.tools.chaos.worker_main PARENT-PID ARGUMENTS…` runs `outlast ARGUMENTS…` and dies
with the process that started it, however that process dies. On Linux the kernel ensures this,
elsewhere the end of standard input does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

# PR_SET_PDEATHSIG
_PARENT_DIES = 1


def leash(parent: int) -> None:
    """End this process when `parent` ends.

    `parent` must have started this process, from a thread that stays alive.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)
    else:
        threading.Thread(target=_until_input_ends, daemon=True).start()
    # The parent was gone before the leash was in place.
    if os.getppid() != parent:
        _die()


def _until_input_ends() -> None:
    while os.read(0, 4096):
        pass
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    leash(int(sys.argv[1]))
    from outlast.cli import main as outlast

    outlast(sys.argv[2:])


if __name__ == "__main__":
    main()
