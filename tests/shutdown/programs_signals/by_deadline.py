"""by_deadline.py HOW: hang in some way until the deadline ends the process."""

import asyncio
import atexit
import itertools
import logging
import os
import signal
import sys
import threading
import time
import warnings

from said import say

from outlast.shutdown import exit_timer as module
from outlast.shutdown.exit_timer import ExitTimer

how = sys.argv[1]
if how not in {"gil", "finalizing"}:
    module.BACKSTOP = (
        60.0  # a busy machine may give the thread no turn for the 0.2 s before the timer
    )
deadline = ExitTimer()
deadline.start()
deadline.start()
names = [thread.name for thread in threading.enumerate()]
assert names.count("outlast-deadline") == 1, names


class Slow:
    def __del__(self, sleep=time.sleep) -> None:
        sleep(60)


def hung() -> None:
    threading.Event().wait()


say("ready")
if how == "join":
    threading.Thread(target=hung).start()
    deadline.arm(0.2, 75)
elif how == "loop":

    async def main() -> None:
        deadline.arm(0.2, 75)
        time.sleep(60)

    asyncio.run(main())
elif how == "locked":
    # The thread that hangs holds what an orderly exit would need.
    for handler in [logging.lastResort, *logging.getLogger().handlers]:
        handler.acquire()
    threading.Thread(target=lambda: deadline.arm(0.2, 75)).start()
    hung()
elif how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: deadline.arm(0.2, 75))
    os.kill(os.getpid(), signal.SIGTERM)
    hung()
elif how == "computing":
    deadline.arm(0.2, 75)
    while True:
        pass
elif how == "gil":
    sys.setswitchinterval(
        1000
    )  # the deadline's thread gets no turn, however long it takes to begin
    deadline.arm(0.2, 75)
    sum(itertools.repeat(1, 10**11))
elif how == "finalizing":
    sys.slow = Slow()
    sys.setswitchinterval(1000)
    atexit.register(deadline.arm, 0.2, 75)
elif how == "earlier":
    deadline.arm(600, 1)
    deadline.arm(0.2, 75)
    deadline.arm(600, 2)
    deadline.arm(0.25, 3)
    hung()
elif how == "past":
    deadline.arm(-5, 75)
    hung()
elif how == "disarmed":
    deadline.arm(0.2, 75)
    deadline.disarm()
    say("timer", signal.getitimer(signal.ITIMER_REAL)[0])
    time.sleep(0.3)
    deadline.arm(1e9, 75)
    time.sleep(0.1)
    sys.exit(4)
elif how == "armed-anew":
    deadline.arm(0.1, 1)
    deadline.disarm()
    deadline.arm(0.2, 75)
    hung()
elif how == "own-timer":
    signal.setitimer(signal.ITIMER_REAL, 500)
    deadline.arm(300, 75)
    say("timer", signal.getitimer(signal.ITIMER_REAL)[0] > 400)
    deadline.disarm()
    say("timer", signal.getitimer(signal.ITIMER_REAL)[0] > 400)
    sys.exit(4)
elif how == "own-timer-later":
    deadline.arm(300, 75)
    say("timer", 200 < signal.getitimer(signal.ITIMER_REAL)[0] <= 360.0)
    signal.setitimer(signal.ITIMER_REAL, 500)
    deadline.arm(200, 75)
    deadline.disarm()
    say("timer", signal.getitimer(signal.ITIMER_REAL)[0] > 400)
    sys.exit(4)
elif how == "own-handler":
    signal.signal(signal.SIGALRM, lambda *_: say("alarm"))
    deadline.arm(300, 75)
    say("timer", signal.getitimer(signal.ITIMER_REAL)[0] == 0)
    sys.exit(4)
elif how == "forked":
    deadline.arm(300, 75)
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there is a thread
    pid = os.fork()
    if pid == 0:
        say("timer", signal.getitimer(signal.ITIMER_REAL)[0])
        try:
            deadline.arm(0.1, 1)
        except RuntimeError:
            say("refused")
        deadline.start()
        deadline.arm(0.1, 9)
        hung()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
