"""Provide a worker that a test controls, and raw clients for the HTTP server."""

import json
import socket
import threading
from urllib.parse import urlsplit

from outlast.http import Sample
from support.waiting import WAIT_SECONDS


class Worker:
    """What the routes know of a worker. The test sets it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.stall = 0.0
        self.begun: list[str] = []
        self.view: dict = {"draining": False, "reason": None, "seconds_left": None, "layer": None}
        self.numbers: list[Sample] = []
        self.broken: Exception | None = None
        self.gate = threading.Event()
        """While it is clear, every call blocks."""
        self.gate.set()
        self.blocked = threading.Event()
        """A call has met a closed gate."""

    def _do(self) -> None:
        if not self.gate.is_set():
            self.blocked.set()
            assert self.gate.wait(WAIT_SECONDS), "the test never opened the gate"
        if self.broken is not None:
            raise self.broken

    def ready(self) -> str | None:
        self._do()
        return self.reason

    def stalled(self) -> float:
        self._do()
        return self.stall

    def begin_drain(self, reason: str) -> None:
        self._do()
        self.begun.append(reason)

    def drain_view(self) -> dict:
        self._do()
        return self.view

    def refresh(self) -> None:
        self._do()

    def samples(self) -> list[Sample]:
        self._do()
        return self.numbers


def connect(url: str, host: str | None = None, *, buffer: int | None = None) -> socket.socket:
    """Connect. `buffer` bounds what the kernel accepts for a client that does not read: by default tens of MB."""
    parts = urlsplit(url)
    address = (host or parts.hostname, parts.port)
    if buffer is None:
        return socket.create_connection(address, timeout=WAIT_SECONDS)
    client = socket.socket()
    client.settimeout(WAIT_SECONDS)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.connect(address)
    return client


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes or resets the connection."""
    received = b""
    try:
        while chunk := client.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def answer(client: socket.socket) -> bytes:
    """Read one answer on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(65536)
    head, _, content = received.partition(b"\r\n\r\n")
    (length,) = [
        int(line[15:])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    while len(content) < length:
        content += client.recv(65536)
    return head + b"\r\n\r\n" + content


def raw(url: str, request: bytes, host: str | None = None) -> bytes:
    """Send these bytes and return all that the server sends until it closes."""
    with connect(url, host) as client:
        client.sendall(request)
        return read_all(client)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def post(
    *headers: str, host: str = "localhost", content: bytes = b"", path: str = "/shutdown"
) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", "Connection: close", *headers,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def own_address() -> str | None:
    """Return an address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.250", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address
