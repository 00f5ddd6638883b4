"""`stopping.py PATTERN TIMES FILE ARGS`: run a program that stops when it has printed a line.

It sends itself SIGSTOP after the TIMES-th line like PATTERN, so that a test can end it exactly there,
however long the test takes to notice.
"""

import builtins
import itertools
import os
import re
import runpy
import signal
import sys
from pathlib import Path

pattern, seen = re.compile(sys.argv[1]), itertools.count(1)
times = int(sys.argv[2])
real_print = builtins.print


def print_and_stop(*values: object, **options: object) -> None:
    real_print(*values, **options)
    if pattern.search(" ".join(map(str, values))) and next(seen) == times:
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSTOP)


builtins.print = print_and_stop
sys.argv = sys.argv[3:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
