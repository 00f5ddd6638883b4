"""Words of the programs. A word is one write, so that lines of several threads and processes stay whole."""

import os
import threading
import time


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def begin(number, at: float) -> None:
    say("begin", number.name, threading.current_thread().name, round(time.monotonic() - at, 3))
