"""A hostile HTTP server cannot exhaust the memory of an effect."""

from __future__ import annotations

import asyncio
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from outlast.effects import http_effect
from support.waiting import WAIT_SECONDS

LIMIT = 100_000
brief = http_effect("brief", timeout=WAIT_SECONDS, body_size_max=LIMIT, undo=None)


@contextmanager
def answering(head: bytes, piece: bytes, pieces: int) -> Iterator[tuple[str, list[int]]]:
    """One that begins an answer and goes on and on, and what it got rid of."""
    sent = [0]

    def serve() -> None:
        with suppress(OSError):
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(head)
                for _ in range(pieces):
                    client.sendall(piece)
                    sent[0] += len(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", sent
        thread.join()


def test_endless_response_is_read_only_up_to_its_limit() -> None:
    gigabyte = 1_000_000_000 // 65_536
    with answering(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"x" * 65_536, gigabyte
    ) as (
        url,
        sent,
    ):
        answer = asyncio.run(brief.request("GET", url))
    assert (len(answer.content), answer.is_cut) == (LIMIT, True)
    assert sent[0] < 50_000_000  # what the system's buffers took


def test_compressed_bomb_does_not_fill_the_memory() -> None:
    packer, zeros = zlib.compressobj(9, wbits=31), b"\0" * 10_000_000
    # A full flush makes each block independent, so that one block can be sent a hundred times.
    first, block = (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    bomb = first + block * 99
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    tracemalloc.start()
    try:
        with answering(head, bomb, 1) as (url, _):
            answer = asyncio.run(brief.request("GET", url))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(answer.content), answer.is_cut) == (LIMIT, True)
    assert most < 300_000_000, most
