"""plain_sync.py WHERE: an `outlast.sync.Outlast` in a program whose main thread is there when a signal comes."""

import logging
import signal
import sys
import threading
import time

from said import cleanup, handlers, leftovers, one, say, two, wakeup_fd

from outlast.sync import Outlast

where = sys.argv[1]
logging.basicConfig(level=logging.INFO)
before = handlers(), wakeup_fd()


def own(number, frame) -> None:
    say("own", signal.Signals(number).name)


def settle() -> None:
    for _ in range(1000):
        if not any(name.startswith("outlast") for name in leftovers()[0]):
            return
        time.sleep(0.05)


def many_times() -> None:
    for number in range(7):
        with Outlast() as app:
            assert app.start(one(""), id=f"run-{number}").result() == "first"
        if number == 1:
            settle()
            known = leftovers()
    settle()
    say("threads", known[0] == leftovers()[0], *leftovers()[0])
    say("open", known[1] == leftovers()[1], known[1], leftovers()[1])
    say("restored", (handlers(), wakeup_fd()) == before)
    say("ready")


def two_of_them() -> None:
    first, second = Outlast(), Outlast("sqlite:///other.db")
    for app in (first, second):
        app.on_cleanup(cleanup)
    with first, second:
        first.start(two("gate"), id="run")
        second.start(two("other-gate"), id="run")
        say("ready")
        time.sleep(3600)


def program() -> None:
    settings = {"signals": 0} if where == "no-signals" else {}
    app = Outlast(**settings)
    app.on_cleanup(cleanup)
    if where == "own-handler":
        signal.signal(signal.SIGTERM, own)
    try:
        with app:
            run = app.start(two("gate"), id="run")
            if where != "thread":
                say("same", (handlers(), wakeup_fd()) == before)
            say("ready")
            if where == "result":
                run.result()
            elif where == "lock":
                threading.Lock().acquire() and threading.Event().wait()
            elif where == "computes":
                while True:
                    pass
            elif where == "own-handler":
                say("drain", app.wait_drain())
                say("drained", app.drain().released)
                return
            elif where == "thread":
                say("drained", app.drain("asked in a thread").reason)
                return
            else:
                time.sleep(3600)
    except BaseException as error:
        say("raised", type(error).__name__)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            say("restored", wakeup_fd() == before[1], *handlers())


if where == "many-times":
    many_times()
elif where == "two":
    two_of_them()
elif where == "thread":
    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    say("restored", (handlers(), wakeup_fd()) == before)
else:
    program()
