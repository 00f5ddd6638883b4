"""two.py ORDER: two SignalReceiver in one program, restored in this order."""

import signal
import socket
import sys
import time

from said import say

from outlast.shutdown.signal_handlers import SignalReceiver

order = sys.argv[1]
write, read = socket.socketpair()
write.setblocking(False)
read.settimeout(30)
signal.set_wakeup_fd(write.fileno())
a = SignalReceiver(lambda number, at: say("a", number.name))
b = SignalReceiver(lambda number, at: say("b", number.name))


def own(number, frame) -> None:
    say("own")


signal.signal(signal.SIGTERM, own)
assert a.install()
assert a.install()
assert b.install()
if order == "both":
    say("ready")
elif order == "last-first":
    b.restore()
    say("ready")
elif order == "first-first":
    a.restore()
    say("ready")
elif order in {"none", "none-first-first"}:
    for signals in (b, a) if order == "none" else (a, b):
        signals.restore()
    say("is", signal.getsignal(signal.SIGTERM) is own)
    say("fd", signal.set_wakeup_fd(write.fileno()) == write.fileno())
    say("ready")
say("byte", *read.recv(10))
time.sleep(3600)
