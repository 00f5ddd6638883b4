"""A TCP proxy in front of a server that goes silent, delays, cuts and refuses connections on demand.

Clients connect over TCP, so that resets and refused connections are the kernel's own. The proxy connects
to the server's Unix socket, or to its port on loopback.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.stores import postgres_place, redis_place

CHUNK = 65536
END = b""
"""In place of a chunk: the sender has closed its side."""


class Link:
    """One client's connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.silent = False
        """Pass on nothing in either direction, without closing a connection."""
        self.marked = False
        """The request that is under way is one whose reply is to be cut."""
        self.pending: dict[socket.socket, deque[tuple[float, bytes]]] = {
            client: deque(),
            server: deque(),
        }
        """Chunks on their way to each side, and when they are due."""

    @property
    def is_open(self) -> bool:
        return self.client.fileno() >= 0

    def other(self, side: socket.socket) -> socket.socket:
        return self.server if side is self.client else self.client

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def reset(self) -> None:
        """Close both sides, and send the client a RST."""
        if self.is_open:
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class FaultProxy:
    """Pass bytes between clients and a server until told otherwise. Any thread may call its methods."""

    def __init__(self, server: Path | int) -> None:
        self._server = server
        self.links: list[Link] = []
        """In the order in which clients connected. A link that was closed stays in the list."""
        self.silent = False
        """New connections are accepted and never answered."""
        self.cuts = 0
        """How many replies were cut so far."""
        self._request_delay = self._reply_delay = 0.0
        self._marker = END
        self._cuts_left = 0
        self._lock = threading.RLock()
        self._listener: socket.socket | None = _listening(0)
        self.port = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._stop = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def go_silent(self, *links: Link) -> None:
        """Silence these links; without any, all of them and every new one."""
        with self._changing():
            self.silent = self.silent or not links
            for link in links or self.links:
                link.silent = True

    def speak_again(self, *links: Link) -> None:
        """Pass on what these links held back; without any, end every silence."""
        with self._changing():
            self.silent = self.silent and bool(links)
            for link in links or self.links:
                link.silent = False

    def answer_new_links(self) -> None:
        """Answer new connections. Those that are silent stay so."""
        with self._changing():
            self.silent = False

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Pass on everything this many seconds late. A client that hangs up does not take back its request."""
        with self._changing():
            self._request_delay, self._reply_delay = requests, replies

    def cut_replies(self, marker: bytes, count: int) -> None:
        """Reset the client in place of the reply to the next `count` requests that contain `marker`."""
        with self._changing():
            self._marker, self._cuts_left = marker, count

    def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        with self._changing():
            assert self._listener is not None, "connections are refused already"
            self._listener.close()
            self._listener = None
            for link in self.links:
                link.reset()

    def accept_again(self) -> None:
        """Accept connections on the same port as before."""
        with self._changing():
            self._listener = self._listener or _listening(self.port)

    def move_to(self, server: Path | int) -> None:
        """Connect new clients to another server."""
        with self._changing():
            self._server = server

    def heal(self) -> None:
        """End every fault. Links that were reset stay closed."""
        self.speak_again()
        self.delay()
        self.cut_replies(END, 0)
        self.accept_again()

    def close(self) -> None:
        with self._changing():
            self._stop = True
        self._thread.join(30)
        for link in self.links:
            link.close()
        for end in (self._listener, self._wake, self._woken):
            if end is not None:
                end.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            yield
        self._wake.send(b"!")

    # -- in the proxy's thread

    def _work(self) -> None:
        while not self._stop:
            with selectors.DefaultSelector() as selector:
                timeout = self._register(selector)
                ready = selector.select(timeout)
            with self._lock:
                for key, _ in ready:
                    self._serve(key)
                self._pass_on()

    def _register(self, selector: selectors.BaseSelector) -> float | None:
        """Register what can be read now, and return how long until a delayed chunk is due."""
        selector.register(self._woken, selectors.EVENT_READ)
        with self._lock:
            if self._listener is not None:
                selector.register(self._listener, selectors.EVENT_READ)
            dues = []
            for link in self._talking():
                for side in (link.client, link.server):
                    queue = link.pending[link.other(side)]
                    if not queue or queue[-1][1] != END:
                        selector.register(side, selectors.EVENT_READ, link)
                    if queue:
                        dues.append(queue[0][0])
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _talking(self) -> list[Link]:
        return [link for link in self.links if link.is_open and not link.silent]

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._woken:
            self._woken.recv(4096)
        elif key.fileobj is self._listener:
            self._accept(self._listener)
        elif key.data is not None and key.data.is_open:
            self._receive(key.data, key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place = self._server
        server = socket.socket(socket.AF_INET if isinstance(place, int) else socket.AF_UNIX)
        link = Link(client, server)
        link.silent = self.silent
        try:
            server.connect(("127.0.0.1", place) if isinstance(place, int) else str(place))
        except OSError:
            link.reset()
        self.links.append(link)

    def _receive(self, link: Link, side: socket.socket) -> None:
        try:
            chunk = side.recv(CHUNK)
        except OSError:
            chunk = END
        is_request = side is link.client
        if is_request and self._cuts_left and self._marker in chunk:
            self._cuts_left -= 1
            link.marked = True
        elif not is_request and link.marked:
            self.cuts += 1
            link.reset()
            return
        late = self._request_delay if is_request else self._reply_delay
        link.pending[link.other(side)].append((time.monotonic() + late, chunk))

    def _pass_on(self) -> None:
        now = time.monotonic()
        for link in self._talking():
            for side, queue in link.pending.items():
                while link.is_open and queue and queue[0][0] <= now:
                    _send(link, side, queue.popleft()[1])


def _send(link: Link, side: socket.socket, chunk: bytes) -> None:
    try:
        if chunk == END:
            link.close()
        else:
            side.sendall(chunk)
    except OSError:
        # The client may be gone; a delayed request still reaches the server.
        if side is link.server or not link.pending[link.server]:
            link.close()


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


@contextmanager
def proxied_store(server: str) -> Iterator[tuple[FaultProxy, str, str]]:
    """Yield a proxy to a test server, and an empty store's address through the proxy and past it."""
    is_postgres = server.startswith("postgres")
    socket_path = (
        Path(server.rpartition("host=")[2]) / ".s.PGSQL.5432"
        if is_postgres
        else Path(server.removeprefix("unix://"))
    )
    with (postgres_place if is_postgres else redis_place)(server) as direct:
        proxy = FaultProxy(socket_path)
        try:
            if is_postgres:
                through = f"postgresql://postgres@/postgres?host=127.0.0.1&port={proxy.port}"
                yield proxy, f"{through}&{direct.rpartition('&')[2]}", direct
            else:
                yield proxy, f"redis://127.0.0.1:{proxy.port}?{direct.rpartition('?')[2]}", direct
        finally:
            proxy.close()
