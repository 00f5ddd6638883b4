"""Notify other processes of changes through FIFOs beside the database.

Each process that listens has one FIFO. A byte in it names a topic in which something
changed. A byte may get lost, and there may be one for nothing; correctness never depends on it.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlast.store.file_trust import NO_FOLLOW, Owners, give
from outlast.store.topics import Listeners, News, Topic

PREFIX = "notify-"
CAPACITY = 65536
"""The most bytes that a FIFO holds."""


class Notifier:
    def __init__(self, folder: Path, owners: Owners | None = None) -> None:
        self._folder = folder
        self._owners = owners
        self._listeners = Listeners()
        self._path: Path | None = None
        self._fd = -1
        self._stop_read = -1
        self._stop_write = -1
        self._thread: threading.Thread | None = None

    def listen(self, listener: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        """Call the listener when another process notifies.

        If this raises OSError, as on a full disk, the listener was not added.
        """
        # Without FIFOs (Windows), other processes are noticed at the next poll.
        if self._thread is None and hasattr(os, "mkfifo"):
            self._make_fifo()
            self._stop_read, self._stop_write = os.pipe()
            self._thread = threading.Thread(
                target=self._listen, name="outlast-notifier", daemon=True
            )
            self._thread.start()
        self._listeners.add(topic, listener)

    def _make_fifo(self) -> None:
        name, fd = secrets.token_hex(16), -1
        hidden, path = self._folder / f"new-{name}", self._folder / f"{PREFIX}{name}"
        try:
            os.mkfifo(hidden, 0o600)
            # Open it for reading and writing: a FIFO whose last writer has gone would be readable
            # forever.
            fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | NO_FOLLOW)
            give(self._owners, fd)
            # Publish the name only now: a FIFO without a reader is taken for a dead process's.
            hidden.rename(path)
        except OSError:
            if fd >= 0:
                os.close(fd)
            with suppress(OSError):
                hidden.unlink()
            raise
        self._path, self._fd = path, fd

    def notify(self, news: News) -> None:
        """Call the listeners here, and wake every other process that listens on this folder."""
        self._listeners.call(news.here)
        if not news.elsewhere:
            return
        sent = "".join(topic.value for topic in news.elsewhere).encode()
        # The commit is durable by now, so a lost notification must not fail it.
        with (
            suppress(OSError),
            os.scandir(self._folder) as files,
        ):
            for file in files:
                if file.name.startswith(PREFIX) and (
                    self._path is None or file.name != self._path.name
                ):
                    self._notify_one(file.path, sent)

    def _notify_one(self, path: str, sent: bytes) -> None:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | NO_FOLLOW)
        except OSError as error:
            # The FIFO has no reader: its process has died.
            if error.errno == errno.ENXIO:
                with suppress(OSError):
                    Path(path).unlink()
            return
        try:
            # Write to nothing but a FIFO, whatever is there under that name.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                # The FIFO is already full of notifications.
                with suppress(BlockingIOError):
                    os.write(fd, sent)
        finally:
            os.close(fd)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while True:
            if any(fd == self._stop_read for fd, _ in poll.poll()):
                return
            received = b""
            with suppress(BlockingIOError):
                received = os.read(self._fd, CAPACITY)
            # A full FIFO has lost bytes.
            lost = len(received) == CAPACITY
            self._listeners.call(
                [topic for topic in Topic if lost or topic.value.encode() in received]
            )

    def close(self) -> None:
        self._listeners.clear()
        if self._thread is not None and self._path is not None:
            # The FIFO may be removed already, or the disk read-only by now. Then other processes
            # take it for a dead process's.
            with suppress(OSError):
                self._path.unlink()
            os.write(self._stop_write, b"!")
            self._thread.join()
            self._thread = None
            for fd in (self._fd, self._stop_read, self._stop_write):
                os.close(fd)

    def forget_in_child(self) -> None:
        """Close the FIFO in a forked child, where it would pass for a live process's."""
        self._listeners.clear()
        if self._thread is not None:
            self._thread = None
            for fd in (self._fd, self._stop_read, self._stop_write):
                os.close(fd)


class LocalNotifier:
    """Notify listeners in a store that only this process can see."""

    def __init__(self) -> None:
        self._listeners = Listeners()

    def listen(self, listener: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        self._listeners.add(topic, listener)

    def notify(self, news: News) -> None:
        self._listeners.call(news.here)

    def close(self) -> None:
        self._listeners.clear()

    def forget_in_child(self) -> None:
        self._listeners.clear()
