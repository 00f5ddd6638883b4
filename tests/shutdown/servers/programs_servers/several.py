"""several.py HOW: one run() after the other. A signal comes in the first, which ends in time."""

import os
import signal
import sys
import time

from said import one, say

from outlast import Outlast, run


def told_just_before(start):
    """Start the run when a drain has begun."""

    async def start_late(app, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        await app.wait_drain()
        return await start(app, *args, **kwargs)

    return start_late


how = sys.argv[1]
if how == "early":
    Outlast.start = told_just_before(Outlast.start)
say("ready")
say("result", run(one("gate"), id="run-1"))
if how == "lingers":
    time.sleep(3600)
elif how == "forks":
    pid = os.fork()
    if pid == 0:
        say("child", run(one(""), id="run-2"))
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
say("second", run(one(""), id="run-2"))
