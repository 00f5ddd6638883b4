"""chained.py WHO: a program with a handler of its own, set before or after ours."""

import asyncio
import os
import signal
import socket
import sys
import time

from said import begin, say

from outlast.shutdown.signal_handlers import SignalReceiver

who = sys.argv[1]
signals = SignalReceiver(begin)


def own(number, frame=None) -> None:
    say("own", signal.Signals(number).name, frame is not None)


async def loop_before() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, own, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGUSR1, own, signal.SIGUSR1)
    assert signals.install()
    say("had", signals.had_handler(signal.SIGTERM), signals.had_handler(signal.SIGINT))
    say("ready")
    await asyncio.sleep(3600)


async def loop_before_and_restored() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, own, signal.SIGTERM)
    assert signals.install()
    signals.restore()
    signals.restore()
    say("ready")
    await asyncio.sleep(3600)


async def loop_after() -> None:
    assert signals.install()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, own, signal.SIGTERM)
    say("had", signals.had_handler(signal.SIGTERM))
    say("ready")
    await asyncio.sleep(3600)


async def other_signal_after() -> None:
    """asyncio has the wake-up descriptor, ours is the handler."""
    assert signals.install()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, own, signal.SIGUSR1)
    say("ready")
    await asyncio.sleep(3600)


def handler_before() -> None:
    signal.signal(signal.SIGTERM, own)
    assert signals.install()
    say("had", signals.had_handler(signal.SIGTERM), signals.had_handler(signal.SIGINT))
    say("ready")
    time.sleep(3600)


def handler_after() -> None:
    assert signals.install()
    signal.signal(signal.SIGTERM, own)
    say("had", signals.had_handler(signal.SIGTERM))
    say("ready")
    time.sleep(3600)


def handler_after_is_kept() -> None:
    assert signals.install()
    signal.signal(signal.SIGTERM, own)
    signals.restore()
    say("is", signal.getsignal(signal.SIGTERM) is own)
    say("int", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    say("fd", signal.set_wakeup_fd(-1))
    say("ready")


def descriptor_before() -> None:
    """A wake-up descriptor of a program's own gets every byte, of signals that are not ours too."""
    write, read = socket.socketpair()
    write.setblocking(False)
    signal.set_wakeup_fd(write.fileno())
    signal.signal(signal.SIGUSR1, lambda *_: None)
    assert signals.install()
    say("ready")
    while True:
        say("byte", *(signal.Signals(byte).name for byte in read.recv(10)))


def descriptor_after_is_kept() -> None:
    assert signals.install()
    write, _read = socket.socketpair()
    write.setblocking(False)
    signal.set_wakeup_fd(write.fileno())
    signals.restore()
    say("is", signal.set_wakeup_fd(-1) == write.fileno())
    say("ready")


def descriptor_closed_meanwhile() -> None:
    write, _read = socket.socketpair()
    write.setblocking(False)
    signal.set_wakeup_fd(write.fileno())
    assert signals.install()
    number = write.fileno()
    write.close()
    other, _ = socket.socketpair()
    os.dup2(other.fileno(), number)
    os.set_blocking(number, False)
    signals.restore()
    say("is", signal.set_wakeup_fd(-1) == -1)
    say("ready")


programs = {
    "handler-before": handler_before,
    "handler-after": handler_after,
    "handler-after-is-kept": handler_after_is_kept,
    "descriptor-before": descriptor_before,
    "descriptor-after-is-kept": descriptor_after_is_kept,
    "descriptor-closed-meanwhile": descriptor_closed_meanwhile,
}
coroutines = {
    "loop-before": loop_before,
    "loop-before-and-restored": loop_before_and_restored,
    "loop-after": loop_after,
    "other-signal-after": other_signal_after,
}
if who in programs:
    programs[who]()
elif sys.argv[2] == "uvloop":
    import uvloop

    uvloop.run(coroutines[who]())
else:
    asyncio.run(coroutines[who]())
