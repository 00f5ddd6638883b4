"""Run `outlast bench` with parts of a chosen length: `short_bench.py PARTS ARGUMENTS`.

PARTS is a JSON object: `shares` of `--seconds` for commits, one run and a hundred runs; `kills`; and `at_work`,
the seconds that a worker has had the run when it is killed.
"""

import json
import sys

from outlast.cli import main
from outlast.tools.bench import bench, recovery, steps

parts = json.loads(sys.argv[1])
bench.SHARES = tuple(parts["shares"])
recovery.KILLS = parts.get("kills", recovery.KILLS)
recovery.AT_WORK_SECONDS = parts.get("at_work", 0.02)
recovery.TAKEN_SECONDS = recovery.UP_SECONDS = 3600.0
steps.WARM_UP_SECONDS = 0.02
main(sys.argv[2:])
