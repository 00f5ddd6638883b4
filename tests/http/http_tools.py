"""A face for the routes, and clients that do not do as they should."""

import json
import socket
import time
from urllib.parse import urlsplit

from outlast.http import Sample

WAIT_SECONDS = 20.0


class Worker:
    """What the routes know of a worker, set by the test."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.stall = 0.0
        self.begun: list[str] = []
        self.view: dict = {"draining": False, "reason": None, "seconds_left": None, "layer": None}
        self.numbers: list[Sample] = []
        self.broken: Exception | None = None
        self.pause = 0.0

    def _do(self) -> None:
        time.sleep(self.pause)
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

    def look(self) -> None:
        self._do()

    def samples(self) -> list[Sample]:
        self._do()
        return self.numbers


def until(condition, seconds: float = WAIT_SECONDS):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come about in {seconds} s"
        time.sleep(0.005)
    return found


def connect(url: str, host: str | None = None, *, buffer: int | None = None) -> socket.socket:
    """`buffer` bounds what the kernel takes in for a client that does not read: by itself it may be tens of megabytes."""
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
    """Until the server closes, or cuts."""
    received = b""
    try:
        while chunk := client.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def answer(client: socket.socket) -> bytes:
    """One answer, on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(65536)
    head, _, content = received.partition(b"\r\n\r\n")
    (length,) = [
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    ]
    while len(content) < length:
        content += client.recv(65536)
    return head + b"\r\n\r\n" + content


def raw(url: str, request: bytes, host: str | None = None) -> bytes:
    """Everything a server says to these bytes until it closes."""
    with connect(url, host) as client:
        client.sendall(request)
        return read_all(client)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def post(*headers: str, host: str = "localhost", content: bytes = b"", path: str = "/shutdown") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", "Connection: close", *headers,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def own_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.250", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address
