"""guarded.py HOW: stop, kill or arm the guard of a program."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from said import begin, say

from outlast.shutdown.signal_handlers import SignalReceiver
from outlast.shutdown.watchdog import WatchdogProcess

how = sys.argv[1]
grace = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
guard = WatchdogProcess(grace)
if how == "no-spawn":

    def refuse(*args, **kwargs):
        raise BlockingIOError("no more processes")

    subprocess.Popen = refuse
say("started", guard.start(), guard.start())
if guard._process is not None:
    say("guard", guard._process.pid)
if how == "pipe":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signals = SignalReceiver(begin, watchdog=guard)
assert signals.install()
if how == "stopped":
    guard.stop()
    guard.stop()
    say("armed", guard.arm(0.1))
elif how == "stopped-last":
    signals.restore()
    guard.stop()
elif how == "died":
    pid = guard._process.pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
elif how == "pipe":
    guard._process.kill()
    guard._process.wait()
    # Now only our own thread reads the pipe.
elif how == "armed":
    guard.arm(1000)
    guard.arm(0.3)
    guard.arm(1000)
elif how == "armed-and-stopped":
    guard.arm(0.3)
    guard.stop()
elif how == "open":
    opened = Path(f"/proc/{guard._process.pid}/fd").iterdir()
    say("open", *sorted(str(link.readlink()).split(":")[0] for link in opened))
say("threads", *(thread.name for thread in threading.enumerate()))
say("ready")
if how == "armed":
    sum(itertools.repeat(1, 10**11))
time.sleep(3600)
