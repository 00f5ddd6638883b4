"""HTTP effects, and servers that misbehave on purpose."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from typing import Any

import httpx

from outlast import run, workflow
from outlast.effects import (
    HTTPAnswer,
    http_call,
    http_effect,
)
from support.waiting import WAIT_SECONDS, wait_until_async

SECRET = "hunter2-hunter2"


QUICK = {"effect_margin": 0.05, "verify_attempts": 1}


@contextmanager
def server(
    *replies: bytes, read: bool = True, hold: threading.Event | None = None, drips: bool = False
):
    """Serve these bytes, one reply to each connection, and end the connection.

    `hold` delays the replies until it is set. With `drips`, a reply comes byte by byte and never ends.
    """
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_SECONDS)

        def serve() -> None:
            for reply in replies:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if read:
                        requests.append(receive(connection))
                    if hold is not None:
                        hold.wait(WAIT_SECONDS)
                    with suppress(ConnectionError):  # who has waited long enough has gone
                        if not drips:
                            connection.sendall(reply)
                        for byte in chain(reply, repeat(0)) if drips else ():
                            connection.sendall(bytes([byte]))
                            time.sleep(0.01)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests


def receive(connection: socket.socket) -> bytes:
    """A whole request."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(length[0].partition(b":")[2]) if length else 0
    while len(body) < wanted:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


plain = http_effect("plain", timeout=WAIT_SECONDS, undo=None)


lenient = http_effect(
    "lenient",
    timeout=WAIT_SECONDS,
    statuses={404: "happened", 409: "refused", 503: "refused"},
    undo=None,
)


secretive = http_effect(
    "secretive",
    timeout=WAIT_SECONDS,
    headers={"Authorization": lambda: f"Bearer {SECRET}", "X-Api-Key": SECRET},
    kept_headers=("x-trace",),
    undo=None,
)


broken_secret = http_effect(
    "broken_secret",
    timeout=WAIT_SECONDS,
    headers={"Authorization": lambda: f"{SECRET}\n"},
    undo=None,
)


missing_secret = http_effect(
    "missing_secret",
    timeout=WAIT_SECONDS,
    headers={"Authorization": lambda: {}["PAY_TOKEN"]},
    undo=None,
)


EFFECTS = {
    effect.name: effect
    for effect in (plain, lenient, secretive, broken_secret, missing_secret, http_call)
}


@workflow
async def call(name: str, method: str, url: str, options: dict[str, Any]) -> HTTPAnswer:
    return await EFFECTS[name](method, url, **options)


def do(
    name: str, url: str, method: str = "POST", *, store: str = "memory:", **options: Any
) -> HTTPAnswer:
    return run(call(name, method, url, options), id="r", store=store, **QUICK)


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can move."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def send_until_timeout(url: str, requests: list[bytes]) -> HTTPAnswer:
    """Send a call without a run, and let its time-out pass once the server has the request.

    It passes in steps, so that the time without a byte is shorter than the time without the answer.
    """

    async def main() -> HTTPAnswer:
        sending = asyncio.ensure_future(plain.request("POST", url))
        await wait_until_async(lambda: requests)
        for _ in range(10):
            loop.ahead += 0.11 * WAIT_SECONDS
            await asyncio.sleep(0.1)
        return await sending

    loop = MovableLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def send(name: str, url: str, method: str = "POST", **options: Any) -> HTTPAnswer:
    """Without a run: its plain function."""
    return asyncio.run(EFFECTS[name].request(method, url, **options))


# -- what is sent, what comes back


class AwaitedClient(httpx.AsyncClient):
    """A client for the virtual clock: no virtual time passes while it is open."""

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._was_busy, loop.busy = loop.busy, lambda: True
        return await super().__aenter__()

    async def __aexit__(self, *error):
        asyncio.get_running_loop().busy = self._was_busy
        return await super().__aexit__(*error)
