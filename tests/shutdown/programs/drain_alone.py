"""A program of its own that calls `run`: `drain_alone.py STORE ID`."""

import sys

from drain_flows import gated

from outlast import run

store, id = sys.argv[1:]
print(run(gated("gate"), id=id, store=store))
