"""The process of one worker under chaos: `python -m outlast.tools.chaos.worker_main PARENT-PID ARGUMENTS…` is `outlast ARGUMENTS…` on a leash.

It dies with whoever started it, however that one dies: by the kernel on Linux, by the end of its standard input elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

_PARENT_DIES = 1  # PR_SET_PDEATHSIG


def leash(parent: int) -> None:
    """From here on this process ends with `parent`, which must be the one that started it, from a thread that stays."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)
    else:
        threading.Thread(target=_until_input_ends, daemon=True).start()
    if os.getppid() != parent:  # it was gone before it could be asked for
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
