"""Call the ledger from steps and effects, on the event loop or in a thread.

The ledger's port is in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any

from outlast.api.context import current
from outlast.errors import StaleFence

PORT = "CHAOS_LEDGER"
"""The environment variable with the ledger's port."""


class NotDone(Exception):
    """Nothing was done: the ledger refused, or was never reached."""


class Unclear(Exception):
    """The request was sent, but no answer came."""


async def ask(do: str, key: str, port: int | None = None, **more: Any) -> int | None:
    """Send a request and return the number of its line.

    The request carries the run and fence executing here, unless `more` gives them. Raise NotDone,
    Unclear or StaleFence.
    """
    text = _request(do, key, more)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or _port())
    except OSError as error:
        raise NotDone(f"the ledger is not there: {error}") from None
    try:
        writer.write(text)
        await writer.drain()
        return _answer(await reader.readline(), key, text)
    except OSError as error:
        raise Unclear(f"no answer: {error}") from None
    finally:
        writer.close()


def ask_from_thread(do: str, key: str, **more: Any) -> int | None:
    """Send a request from a thread, like `ask`."""
    text = _request(do, key, more)
    try:
        connection = socket.create_connection(("127.0.0.1", _port()))
    except OSError as error:
        raise NotDone(f"the ledger is not there: {error}") from None
    with connection, connection.makefile("rb") as answers:
        try:
            connection.sendall(text)
            return _answer(answers.readline(), key, text)
        except OSError as error:
            raise Unclear(f"no answer: {error}") from None


def _port() -> int:
    return int(os.environ[PORT])


def _request(do: str, key: str, more: dict[str, Any]) -> bytes:
    if "run" not in more:
        here = current()
        more = {"run": here.id, "fence": here.fence, **more}
    return json.dumps({"do": do, "key": key, **more}).encode() + b"\n"


def _answer(line: bytes, key: str, request: bytes) -> int | None:
    if not line.endswith(b"\n"):
        raise Unclear("the connection ended without an answer")
    answer = json.loads(line)
    if "stale" in answer:
        raise StaleFence(key, json.loads(request)["fence"], answer["stale"])
    if "refused" in answer:
        raise NotDone("refused, not now")
    return None if answer["n"] is None else int(answer["n"])
