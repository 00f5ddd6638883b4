"""again.py WHERE BY: a program without handlers of its own, which raises a signal again after its drain."""

import asyncio
import signal
import sys
import threading
import time

from said import say

from outlast.shutdown.signal_handlers import SignalReceiver

where, by = sys.argv[1:]
told = threading.Event()
got: list[signal.Signals] = []


def begin(number, at) -> None:
    say("begin", number.name)
    got.append(number)
    told.set()
    if by == "thread":
        threading.Thread(target=over, daemon=True).start()


def over() -> None:
    say("over", threading.current_thread() is threading.main_thread())
    signals.raise_again(got[0])


async def in_loop() -> None:
    assert signals.install()
    say("ready")
    try:
        if by == "main":
            while not told.is_set():
                await asyncio.sleep(0.01)
            over()
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        say("cancelled")
        raise


signals = SignalReceiver(begin)
try:
    if where == "loop":
        asyncio.run(in_loop())
    elif where == "uvloop":
        import uvloop

        uvloop.run(in_loop())
    else:
        if where == "ignored":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signals.install()
        say("ready")
        if where == "ignored":
            time.sleep(0.2)
        elif by == "main":
            told.wait()
            over()
        else:
            time.sleep(3600)
        say("went on")
except KeyboardInterrupt:
    say("KeyboardInterrupt")
    raise
