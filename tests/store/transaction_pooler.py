"""A transaction pooler, as small as can be: it speaks enough of the protocol (v3) to hand a server's session to another client at each end of a
transaction. Like pgbouncer it tells each client a pid of its own."""

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102


class Pooler:
    def __init__(self, server_socket: Path, own_socket: Path, sessions: int) -> None:
        self.server_socket, self.own_socket, self.count = server_socket, own_socket, sessions
        self.transactions = 0
        self.lent: set[tuple[int, int]] = set()
        """Which client (by its number) has had which session."""
        self._clients = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        self.idle: asyncio.Queue[tuple[int, asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        for number in range(self.count):
            reader, writer = await asyncio.open_unix_connection(str(self.server_socket))
            words = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"
            writer.write(struct.pack("!ii", len(words) + 8, 196608) + words)
            self._writers.append(writer)
            self.greeting = await self._until_ready(reader)
            self.idle.put_nowait((number, reader, writer))
        server = await asyncio.start_unix_server(self._client, str(self.own_socket))
        ready.set()
        async with server:
            await stop.wait()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for writer in self._writers), return_exceptions=True
        )

    async def _until_ready(self, reader: asyncio.StreamReader) -> bytes:
        """What the server says of itself when a session begins."""
        said = b""
        while True:
            kind, body = await self._message(reader)
            if kind == b"S":
                said += kind + struct.pack("!i", len(body) + 4) + body
            if kind == b"Z":
                return said

    async def _message(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        head = await reader.readexactly(5)
        return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        number = self._clients
        self._writers.append(writer)
        try:
            while True:
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                body = await reader.readexactly(length - 4)
                (code,) = struct.unpack("!i", body[:4])
                if code == CANCEL_REQUEST:
                    return
                if code not in (SSL_REQUEST, GSS_REQUEST):
                    break
                writer.write(b"N")
            key = b"K" + struct.pack("!iii", 12, 1_000_000 + number, 1)
            writer.write(
                b"R"
                + struct.pack("!ii", 8, 0)
                + self.greeting
                + key
                + b"Z"
                + struct.pack("!i", 5)
                + b"I"
            )
            while True:
                await self._transaction(number, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, EOFError):
            return
        finally:
            writer.close()

    async def _transaction(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until the server is idle again, in a session that was another client's before."""
        kind, body = await self._message(reader)
        if kind == b"X":
            raise EOFError
        which, server, to_server = await self.idle.get()
        self.lent.add((number, which))
        self.transactions += 1
        while True:
            to_server.write(kind + struct.pack("!i", len(body) + 4) + body)
            if kind in (b"Q", b"S"):
                status = await self._answers(server, writer)
                if status == b"I":
                    break
            kind, body = await self._message(reader)
        self.idle.put_nowait((which, server, to_server))

    async def _answers(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        while True:
            kind, body = await self._message(server)
            writer.write(kind + struct.pack("!i", len(body) + 4) + body)
            if kind == b"Z":
                await writer.drain()
                return body


@contextmanager
def pooling(server_socket: Path, folder: Path, sessions: int = 3) -> Iterator[Pooler]:
    """In a thread of its own; its address is the folder, as a host."""
    pooler = Pooler(server_socket, folder / ".s.PGSQL.5432", sessions)
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(pooler.serve(ready, stop))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield pooler
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
