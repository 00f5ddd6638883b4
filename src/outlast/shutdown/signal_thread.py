"""Read the signals of one installation, in the thread `outlast-signals`."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable

from outlast.shutdown.wakeup_descriptors import SignalChannels, read
from outlast.shutdown.watchdog import ARM, RECORD_BYTES

SAME_SECONDS = 0.05
"""The same signal within this time counts once.

A parent may pass on a signal that the terminal has sent too, or a key may bounce.
"""
LATE_BYTE_SECONDS = 10.0
"""How much later than the handler's call the wake-up byte of the same signal may arrive.

The watchdog relays the byte, and on a busy machine it may get no CPU for seconds. A late byte must
not turn one SIGINT into two.
"""


class SignalPair:
    """Merge the two ways of one signal, and decide which arrivals are new signals. No I/O.

    The handler runs once for every wake-up byte or for several at once, and perhaps much later:
    when the main thread returns from a C call. So a handler's call is not new while a byte has no
    call yet. The first arrival always counts. At worst, a repeated signal is lost.
    """

    def __init__(self) -> None:
        self._last_new = float("-inf")
        self._bytes_without_call = 0
        self._calls_without_byte = 0
        self._late_bytes_until = float("-inf")

    def byte_arrived(self, at: float) -> bool:
        """Note a wake-up byte, and return whether it is a new signal."""
        if self._calls_without_byte and at < self._late_bytes_until:
            self._calls_without_byte -= 1
            return False
        self._bytes_without_call += 1
        return self._is_new(at)

    def handler_called(self, at: float) -> bool:
        """Note a call of the Python-level handler, and return whether it is a new signal."""
        if self._bytes_without_call:
            self._bytes_without_call = 0
            return False
        self._calls_without_byte = (
            self._calls_without_byte + 1 if at < self._late_bytes_until else 1
        )
        self._late_bytes_until = at + LATE_BYTE_SECONDS
        return self._is_new(at)

    def _is_new(self, at: float) -> bool:
        if at - self._last_new < SAME_SECONDS:
            return False
        self._last_new = at
        return True


class SignalReader:
    """Read both channels of one installation until it is restored."""

    def __init__(
        self,
        numbers: Iterable[int],
        channels: SignalChannels,
        on_signal: Callable[[int, float], None],
    ) -> None:
        self._channels = channels
        self._on_signal = on_signal
        self._pairs = {int(number): SignalPair() for number in numbers}
        self._partial = b""
        self._selector: selectors.BaseSelector = getattr(
            selectors, "PollSelector", selectors.SelectSelector
        )()
        self._ended = False

    def run(self) -> None:
        """Call `on_signal(number, at)` for each new signal, until the channels are restored."""
        channels = self._channels
        self._selector.register(channels.pipe_reader, selectors.EVENT_READ, self._read_pipe)
        if channels.relay is None:
            self._selector.register(channels.wake_reader, selectors.EVENT_READ, self._read_wake)
        else:
            self._selector.register(channels.relay, selectors.EVENT_READ, self._read_relay)
        while not self._ended:
            # Read the wake-up descriptor first: it has the more precise time.
            for key, _ in sorted(
                self._selector.select(), key=lambda ready: ready[0].fileobj is channels.pipe_reader
            ):
                key.data()
        self._selector.close()
        channels.close_read()

    def _read_pipe(self) -> None:
        try:
            data = self._channels.pipe_reader.recv(4096)
        except BlockingIOError:
            return
        now = time.monotonic()
        for number in data:
            if number and self._pairs[number].handler_called(now):
                self._on_signal(number, now)
        self._ended = not data or 0 in data

    def _read_wake(self) -> None:
        try:
            data = read(self._channels.wake_reader)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._channels.wake_reader)
            return
        self._channels.pass_on(bytes(number for number in data if number < ARM))
        now = time.monotonic()
        for number in data:
            self._byte_arrived(number, now)

    def _read_relay(self) -> None:
        relay = self._channels.relay
        assert relay is not None
        try:
            data = os.read(relay, 4096)
        except BlockingIOError:
            return
        if not data:
            # The watchdog is gone. Read what it would have read.
            self._selector.unregister(relay)
            self._selector.register(
                self._channels.wake_reader, selectors.EVENT_READ, self._read_wake
            )
            return
        self._partial += data
        whole = len(self._partial) - len(self._partial) % RECORD_BYTES
        records, self._partial = self._partial[:whole], self._partial[whole:]
        self._channels.pass_on(records[::RECORD_BYTES])
        now = time.monotonic()
        for start in range(0, whole, RECORD_BYTES):
            at = int.from_bytes(records[start + 1 : start + RECORD_BYTES], "big") / 1e9
            self._byte_arrived(records[start], min(at, now))

    def _byte_arrived(self, number: int, at: float) -> None:
        pair = self._pairs.get(number)
        if pair is not None and pair.byte_arrived(at):
            self._on_signal(number, at)
