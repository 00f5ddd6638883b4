"""Hold the descriptors through which signals arrive, and pass them on to other readers.

On Windows, a socket's number is not a file's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from outlast.shutdown.watchdog import ARM, WatchdogProcess

END = b"\0"
_BYTES = {number: bytes((number,)) for number in range(1, ARM)}


class SignalChannels:
    """The descriptors of one installation.

    The main thread writes and restores. The signal thread reads, and closes what it reads.
    """

    def __init__(self, watchdog: WatchdogProcess | None) -> None:
        self.is_muted = False
        """Whether signals no longer begin anything. They are still passed on."""
        self._pipe, self.pipe_reader = _pair()
        self.next_fd = -1
        """The wake-up descriptor that was set before ours."""
        self._next: socket.socket | int | None = None
        """A duplicate of it, which stays open while we write to it."""
        self._retired: list[socket.socket | int] = []
        self._taken = False
        attached = watchdog.attach() if watchdog is not None else None
        self.relay: int | None
        if attached is None:
            wake, other = _pair()
            self.wake_fd, self.wake_reader = wake.detach(), other.detach()
            self.relay = None
        else:
            self.wake_fd, self.relay, self.wake_reader = attached

    # called in the main thread

    def install(self) -> None:
        """Set our wake-up descriptor, and remember the one before."""
        self.next_fd = signal.set_wakeup_fd(self.wake_fd, warn_on_full_buffer=False)
        self._taken = True
        if self.next_fd >= 0:
            self._next = _dup(self.next_fd)

    def write(self, number: int) -> None:
        """Tell the signal thread that the Python-level handler was called."""
        # If the pipe is full, there is a byte in it already.
        with contextlib.suppress(OSError):
            self._pipe.send(_BYTES[number])

    def mute(self) -> None:
        """Ignore signals that arrive from now on."""
        self.is_muted = True

    def restore(self) -> None:
        """Restore the wake-up descriptor.

        The signal thread ends when it has read and passed on the rest.
        """
        self.mute()
        old = signal.set_wakeup_fd(-1)
        if old != self.wake_fd:
            _set_wakeup_fd(old)
        elif self._next is not None and _same_file(self.next_fd, self._next):
            # Only if its loop is still open: otherwise the number may belong to another file by
            # now.
            _set_wakeup_fd(self.next_fd)
        _close(self.wake_fd)
        # If the pipe is full, the thread has not read yet, and will see the end.
        with contextlib.suppress(OSError):
            self._pipe.send(END)
        self._pipe.close()

    def follow(self, gone: SignalChannels) -> None:
        """Pass on to the next reader in line, because the one that we passed on to goes away."""
        if self._next is not None:
            # The signal thread may be writing to it.
            self._retired.append(self._next)
        self._next = None if gone._next is None else _dup(_fileno(gone._next))
        self.next_fd = gone.next_fd

    def close_in_child(self) -> None:
        """Close the descriptors in a forked child, where no thread reads them."""
        if self._taken:
            old = signal.set_wakeup_fd(-1)
            if old != self.wake_fd:
                _set_wakeup_fd(old)
        _close(self.wake_fd)
        self._pipe.close()
        self.close_read()

    # called in the signal thread

    def pass_on(self, data: bytes) -> None:
        """Write the bytes to the wake-up descriptor that was set before ours."""
        following = self._next
        if following is None or not data:
            return
        # The pipe may be full, or its loop gone.
        with contextlib.suppress(OSError):
            if isinstance(following, socket.socket):
                following.send(data)
            else:
                os.write(following, data)

    def close_read(self) -> None:
        """Close the descriptors that the signal thread reads."""
        self.pipe_reader.close()
        _close(self.wake_reader)
        if self.relay is not None:
            _close(self.relay)
        if self._next is not None:
            self._retired.append(self._next)
        self._next = None
        while self._retired:
            _close(self._retired.pop())


def _pair() -> tuple[socket.socket, socket.socket]:
    write, read = socket.socketpair()
    write.setblocking(False)  # noqa: FBT003
    read.setblocking(False)  # noqa: FBT003
    return write, read


def read(fd: int) -> bytes:
    if sys.platform != "win32":
        return os.read(fd, 4096)
    with contextlib.closing(socket.socket(fileno=fd)) as wrapped:
        try:
            return wrapped.recv(4096)
        finally:
            wrapped.detach()


def _dup(fd: int) -> socket.socket | int | None:
    try:
        return os.dup(fd) if sys.platform != "win32" else socket.socket(fileno=socket.dup(fd))
    except (OSError, AttributeError):
        return None


def _fileno(thing: socket.socket | int) -> int:
    return thing if isinstance(thing, int) else thing.fileno()


def _same_file(fd: int, kept: socket.socket | int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(_fileno(kept)))
    except OSError:
        return False


def _set_wakeup_fd(fd: int) -> None:
    # Its owner may have closed it meanwhile.
    with contextlib.suppress(OSError, ValueError):
        signal.set_wakeup_fd(fd)


def _close(thing: socket.socket | int) -> None:
    if isinstance(thing, socket.socket):
        thing.close()
    elif sys.platform != "win32":
        os.close(thing)
    else:
        socket.close(thing)
