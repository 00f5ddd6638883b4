"""`stopping.py PATTERN TIMES FILE ARGS`: run a program that stops when it has printed a line.

It sends itself SIGSTOP after the TIMES-th line like PATTERN, so that a test can end it exactly there,
however long the test takes to notice. With AWAIT_DRAIN in the environment the line then returns only
when a drain has begun: a signal reaches Outlast in a thread, and on a busy machine the program could
go on for several calls before.
"""

import builtins
import itertools
import os
import re
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

pattern, seen = re.compile(sys.argv[1]), itertools.count(1)
times = int(sys.argv[2])
real_print = builtins.print
WAIT_SECONDS = 120.0


def print_and_stop(*values: object, **options: object) -> None:
    real_print(*values, **options)
    if pattern.search(" ".join(map(str, values))) and next(seen) == times:
        sys.stdout.flush()
        drain_begun = drain_event() if "AWAIT_DRAIN" in os.environ else None
        os.kill(os.getpid(), signal.SIGSTOP)
        if drain_begun is not None:
            assert drain_begun.wait(WAIT_SECONDS), "no drain has begun"


def drain_event() -> threading.Event:
    """Return an event that is set when a drain of this process begins."""
    from outlast.shutdown.coordinator import ShutdownCoordinator

    begun, begin = threading.Event(), ShutdownCoordinator.begin

    def begin_and_tell(*args: Any, **options: Any) -> bool:
        try:
            return begin(*args, **options)
        finally:
            begun.set()

    ShutdownCoordinator.begin = begin_and_tell  # type: ignore[method-assign]
    return begun


builtins.print = print_and_stop
sys.argv = sys.argv[3:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
