"""A program of its own that calls `run`: `drain_alone.py STORE ID STEPS PAUSE`."""

import sys

from drain_flows import chain

from outlast import run

store, id, steps, pause = sys.argv[1:]
print(run(chain(0, int(steps), float(pause)), id=id, store=store))
