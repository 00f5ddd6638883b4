"""forks.py HOW: a child of a program that receives signals. SignalReceiver to the child do not reach its parent."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

from said import begin, say

from outlast.shutdown.signal_handlers import SignalReceiver
from outlast.shutdown.watchdog import WatchdogProcess


def wait() -> None:
    say("child", os.getpid())
    time.sleep(3600)


def forked() -> None:
    pid = os.fork()
    if pid == 0:
        wait()
    say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def forked_many() -> None:
    """Ended as soon as they are there: not one of the signals may reach the parent's pipe."""
    codes = set()
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        os.kill(pid, signal.SIGTERM)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    say("ended", *codes)


def forked_in_thread() -> None:
    thread = threading.Thread(target=forked)
    thread.start()
    thread.join()


def process() -> None:
    child = multiprocessing.get_context("fork").Process(target=wait)
    child.start()
    time.sleep(0.2)
    child.terminate()
    child.join()
    say("ended", child.exitcode)


def command() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print('child 0', flush=True); time.sleep(3600)"]
    )
    time.sleep(0.2)
    child.terminate()
    say("ended", child.wait())


def anew() -> None:
    """A child may install its own."""
    pid = os.fork()
    if pid == 0:
        begun = threading.Event()
        own = SignalReceiver(lambda number, at: (begin(number, at), begun.set()))
        assert own.install()
        os.kill(os.getpid(), signal.SIGTERM)
        begun.wait(60)
        os._exit(7)
    say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def chained() -> None:
    """The handler of before is the child's again."""
    pid = os.fork()
    if pid == 0:
        say("is", signal.getsignal(signal.SIGTERM) is own)
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def own(number, frame) -> None:
    say("own", os.getpid() == parent)


def in_loop() -> None:
    """The parent's loop does not hear of a child's signals either."""

    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, say, "loop")
        assert signals.install()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        await asyncio.sleep(0.2)

    asyncio.run(main())


def holding() -> None:
    """Children that outlive the worker do not keep its guard."""
    if os.fork() == 0:
        wait()
    subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, time; os.write(1, b'command %d\\n' % os.getpid()); time.sleep(3600)",
        ]
    )
    time.sleep(3600)


parent = os.getpid()
how = sys.argv[1]
guard = WatchdogProcess(60) if "guard" in sys.argv else None
if guard is not None:
    assert guard.start()
    say("guard", guard._process.pid)
signals = SignalReceiver(begin, watchdog=guard)
if how == "chained":
    signal.signal(signal.SIGTERM, own)
if how != "in-loop":
    assert signals.install()
say("ready")
{
    "forked": forked, "forked-many": forked_many, "forked-in-thread": forked_in_thread, "process": process,
    "command": command, "anew": anew, "chained": chained, "in-loop": in_loop, "holding": holding,
}[how]()  # fmt: skip
say("still", signal.getsignal(signal.SIGTERM) == signals._handler)
time.sleep(3600)
