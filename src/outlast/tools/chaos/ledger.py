"""The outside world: a process of its own, with a log that is synced before anybody has an answer, and a memory for fences.

`python -m outlast.tools.chaos.ledger PARENT-PID FOLDER` prints its port and answers one line of JSON with one, each connection any number:

    {"do": "act", …}        done at every request that comes: what is asked for twice is there twice
    {"do": "once", …}       done once a key: a repeat gets the first answer
    {"do": "undo", "undoes": KEY, …}, {"do": "undo_once", …}     the same for undoings
    {"do": "asked", …}      whether it was done, by its key. That is remembered too: a writer with an older fence comes too late from then on
    {"do": "began", …}      a step's body begins, `attempt` of it. Never refused: that is for the outcome to be

Each has `key`, `run`, `fence`, and may have `delay` (seconds until it is done, whoever has gone away by then) and `fault`: "refuse" (nothing is done,
and it says so) or "cut" (it is done, and the connection ends without an answer). A fault meets only the first request of a key.

Where the fence is below the highest that the run has shown, nothing is done: {"stale": that one}. It is logged, as what was refused.
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
"""What a request is in the log, once it is done."""
ONCE = frozenset({"once", "undo_once"})
BEGAN = "began"


class Ledger:
    """One log. Everything happens on one loop; lines that come together are synced together."""

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
        """None: the connection is to be cut."""
        do, key = request["do"], request["key"]
        fault = request.get("fault", "") if key not in self._faulted else ""
        self._faulted.add(key)
        await asyncio.sleep(request.get("delay", 0.0))
        if fault == "refuse":
            return {"refused": True}
        run, fence = request["run"], request["fence"]
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
        """Durable when it returns: its number. What counts is decided before the first await: the order of the log is that of the answers."""
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
        lines, self._unsynced = self._unsynced, []
        synced, self._synced = self._synced, None
        self._file.write(b"".join(lines))
        os.fsync(self._file.fileno())
        synced.set_result(None)


class LogTorn(Exception):
    """The ledger's log lacks a line, or has one that cannot be read: nothing can be told from the rest."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a log, in order. Of a last one that is not whole nobody has had an answer. LogTorn for a gap."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                return
            try:
                said = json.loads(line)
            except ValueError as error:
                raise LogTorn(f"line {number} of {path} cannot be read: {error}") from None
            if said["n"] != number:
                raise LogTorn(f"line {number} of {path} is missing: there is {said['n']}")
            yield said


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
            return  # whoever asked has died
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
