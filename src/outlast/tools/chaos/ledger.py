"""Play the outside world: a separate process that syncs its log before it answers.

`python -m outlast.tools.chaos.ledger PARENT-PID FOLDER` prints its port. It answers each line of
JSON with one line. A connection may send any number of requests:

    {"do": "act", …}    Act on every request. Asking twice acts twice.
    {"do": "once", …}   Act once per key. A repeat gets the first answer.
    {"do": "undo", "undoes": KEY, …}, {"do": "undo_once", …}
                        The same for compensations.
    {"do": "asked", …}  Ask whether the key was done. The ledger remembers the request's fence:
                        from then on a writer with an older fence is too late.
    {"do": "began", …}  Record that attempt `attempt` of a step's body begins. Never refused,
                        because the outcome is what gets refused.

Each request has `key`, `run` and `fence`. It may have `delay`, the seconds until the ledger acts,
even if the client is gone by then. It may have `fault`: "refuse" (the ledger does nothing and says
so) or "cut" (the ledger acts and closes the connection without an answer). A fault applies only to
the first request of a key.

If the fence is below the highest fence seen for the run, the ledger does nothing, answers {"stale":
that fence} and logs the refusal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOG = "ledger.jsonl"
DONE = {"act": "act", "once": "act", "undo": "undo", "undo_once": "undo"}
"""The log's name for a request that was carried out."""
ONCE = frozenset({"once", "undo_once"})
BEGAN = "began"


class Ledger:
    """Write one log on one event loop. Lines that arrive together are synced together."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._newest: dict[str, int] = {}
        """The highest fence of each run."""
        self._first: dict[str, int] = {}
        """The number of the first line of each key that was done."""
        self._faulted: set[str] = set()
        self._count = 0
        self._unsynced: list[bytes] = []
        self._synced: asyncio.Future[None] | None = None

    def close(self) -> None:
        self._file.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Carry out a request and return the answer. None means: cut the connection."""
        do = request["do"]
        key = request["key"]
        fault = request.get("fault", "") if key not in self._faulted else ""
        self._faulted.add(key)
        await asyncio.sleep(request.get("delay", 0.0))
        if fault == "refuse":
            return {"refused": True}
        run = request["run"]
        fence = request["fence"]
        newest = self._newest.get(run, 0)
        if do != BEGAN and fence < newest:
            await self._write(request, what="refused", newest=newest)
            return {"stale": newest}
        self._newest[run] = max(newest, fence)
        first = self._first.get(key)
        if do == "asked":
            await self._write(request, what="asked", found=first is not None)
            return {"n": first}
        if do == BEGAN:
            return {"n": await self._write(request, what=BEGAN)}
        if do in ONCE and first is not None:
            await self._write(request, what="repeat")
            return {"n": first}
        self._first.setdefault(key, self._count)
        number = await self._write(request, what=DONE[do])
        return None if fault == "cut" else {"n": self._first[key] if do in ONCE else number}

    async def _write(self, request: dict[str, Any], **more: Any) -> int:
        """Write a line, wait until it is durable, and return its number.

        The line gets its number before the first await, so the log has the order of the decisions.
        """
        kept: dict[str, Any] = {
            name: request[name]
            for name in ("key", "run", "fence", "undoes", "of", "attempt")
            if name in request
        }
        line: dict[str, Any] = {"n": self._count, "at": time.time()}
        line |= kept
        line |= more
        self._count += 1
        self._unsynced.append(json.dumps(line).encode() + b"\n")
        loop = asyncio.get_running_loop()
        if self._synced is None:
            self._synced = loop.create_future()
            loop.call_soon(self._sync)
        await asyncio.shield(self._synced)
        return int(line["n"])

    def _sync(self) -> None:
        assert self._synced is not None
        lines = self._unsynced
        self._unsynced = []
        synced = self._synced
        self._synced = None
        self._file.write(b"".join(lines))
        os.fsync(self._file.fileno())
        synced.set_result(None)


class LogTorn(Exception):
    """The ledger's log lacks a line or has an unreadable one. The rest proves nothing."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a log, in order. Raise LogTorn for a gap.

    Stop at an incomplete last line: no client received an answer for it.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                return
            try:
                facts = json.loads(line)
            except ValueError as error:
                raise LogTorn(f"line {number} of {path} cannot be read: {error}") from None
            if facts["n"] != number:
                raise LogTorn(f"line {number} of {path} is missing: there is {facts['n']}")
            yield facts


async def serve(folder: Path) -> None:
    ledger = Ledger(folder / LOG)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                answer = await ledger.answer(json.loads(line))
                if answer is None:
                    writer.transport.abort()
                    return
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            # The client has died.
            return
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    from outlast.tools.chaos.worker_main import leash

    leash(int(sys.argv[1]))
    asyncio.run(serve(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
