"""`moments.py FOLDER URL ID KIND [ACTION POINT]`: a run with one thing of a kind in it, and something that befalls its process at one moment.

A point is `before KIND KEY` or `after KIND KEY` (a commit that writes such an entry; KEY may be `*`), `later KIND KEY` (a while after it), or
`in PLACE` (code of the program itself). What befalls it: `exit` (it dies), `stop` (it is stopped, until somebody wakes it), `drain` (SIGTERM),
`outage` (the store takes nothing more from it).
"""

import asyncio
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from outlast import (
    KEY,
    Happened,
    RunParked,
    effect,
    fencing,
    progress,
    receive,
    run,
    sleep,
    step,
    unit,
    workflow,
)
from outlast.app import outlast as module
from outlast.errors import StoreUnavailable
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Record

FOLDER, URL, ID, KIND = sys.argv[1:5]
ACTION, POINT = sys.argv[5:7] if len(sys.argv) > 5 else ("", "")
LATER = 0.3
SLEEP = 1.0
SETTINGS = {
    "lease": 1.0, "effect_margin": 0.2, "store_patience": 0.3, "progress_interval": 0.01, "linger": 30.0, "death_backoff": 0.01,
}  # fmt: skip
ended, down = threading.Event(), threading.Event()
writing = threading.RLock()
"""A process that is stopped must not hold the lock of the store: nobody could take over."""


def befall() -> None:
    if ended.is_set():
        return
    ended.set()
    if ACTION == "exit":
        os._exit(9)
    elif ACTION == "outage":
        down.set()
    else:
        with writing:
            os.kill(os.getpid(), {"stop": signal.SIGSTOP, "drain": signal.SIGTERM}[ACTION])


def at(point: str) -> None:
    if point == POINT:
        befall()


class Store(SQLiteStore):
    def commit(self, verbs: Sequence[Any]) -> list[Any]:
        return self._at_each(verbs, super().commit)

    def try_commit(self, verbs: Sequence[Any]) -> list[Any] | None:
        return self._at_each(verbs, super().try_commit)

    def _at_each(self, verbs: Sequence[Any], commit: Any) -> Any:
        written = [verb for verb in verbs if type(verb) is Record]
        self._look("before", written)
        if down.is_set():
            raise StoreUnavailable("the store is out of reach.")
        with writing:
            outcomes = commit(verbs)
        if outcomes is not None:
            self._look("after", written)
            self._look("later", written)
        return outcomes

    def _look(self, when: str, written: list[Record]) -> None:
        for verb in written:
            if POINT in (f"{when} {verb.kind} {verb.key}", f"{when} {verb.kind} *"):
                if when == "later":
                    threading.Timer(LATER, befall).start()
                else:
                    befall()


class Refused(Exception):
    """The other side has seen a younger claim, or says no."""


def ask(method: str, path: str, key: str, what: str = "", who: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(urlsplit(URL).netloc, timeout=10)
    try:
        headers = {"Idempotency-Key": key, **(who or fencing.fence_headers())}
        connection.request(method, path, json.dumps({"what": what, "undoes": what}), headers)
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    if answer.status == 409:
        raise Refused(what)
    return answer.status


async def act(path: str, key: str, what: str) -> str:
    at(f"in act {what}")
    if POINT == f"in flight {what}" and not ended.is_set():
        headers = fencing.fence_headers()
        threading.Thread(
            target=ask, args=("POST", f"{path}?delay={2 * LATER}", key, what, headers), daemon=True
        ).start()
        time.sleep(LATER)  # it is there by now, and nothing has come of it
        befall()
    if ACTION == "drain":
        await asyncio.sleep(LATER)  # it has begun, and knows of this one
    assert ask("POST", path, key, what) == 200
    at(f"in happened {what}")
    return what


# -- steps


@step
async def first() -> int:
    return 1


@step
async def last() -> int:
    return 2


@step
async def tell() -> str:
    return await act("/act", "tell", "x")


@step
async def outer() -> str:
    at("in outer")
    return await tell()


@step
async def parts() -> int:
    async with progress(int) as saved:
        for number in range(saved.value or 0, 2):
            await act("/act", f"part {number}", f"part {number}")
            saved.save(number + 1)
            await asyncio.sleep(LATER)  # it is written
    return 2


# -- effects


@effect(timeout=1, failed_on=Refused, idempotent=True)
async def idempotent(*, key: str = KEY) -> str:
    return await act("/once", key, "x")


@effect(timeout=1, failed_on=Refused)
async def neither(*, key: str = KEY) -> str:
    return await act("/act", key, "x")


@effect(timeout=1, failed_on=Refused)
async def verified(what: str, *, key: str = KEY) -> str:
    return await act("/act", key, what)


@verified.verify
async def was_done(what: str, *, key: str = KEY) -> Happened[str] | None:
    return Happened(what) if ask("GET", f"/happened?key={key}", key) == 200 else None


@verified.compensate
async def undo(what: str, *, key: str = KEY) -> str:
    return await act("/undo-once", key, f"undo {what}")


# -- workflows


@workflow
async def offspring() -> str:
    return await tell()


class Rain(Exception):
    pass


@workflow
async def one(kind: str) -> object:
    await first()
    result = await thing(kind)
    await last()  # so that a drain leaves something over
    return result


async def thing(kind: str) -> object:
    if kind == "step":
        return await tell()
    if kind == "progress":
        return await parts()
    if kind == "inner":
        return await outer()
    if kind == "verified":
        return await verified("x")
    if kind == "idempotent":
        return await idempotent()
    if kind == "neither":
        return await neither()
    if kind == "compensation":
        await verified("w")
        await verified("x")
        raise Rain("no picnic")
    if kind == "unit":
        try:
            async with unit("picnic"):
                await verified("a")
                await verified("b")
                raise Rain("no picnic")
        except Rain:
            return "home"
    if kind == "timer":
        await sleep(SLEEP)
    if kind == "message":
        return await receive("go", int)
    if kind == "child":
        return await offspring()
    return None


if __name__ == "__main__":
    module.store_at = lambda _address, **options: Store(f"{FOLDER}/outlast.db", **options)  # type: ignore[assignment]
    try:
        print(json.dumps({"done": run(one(KIND), id=ID, **SETTINGS)}), flush=True)
    except Rain as rain:
        print(json.dumps({"failed": str(rain)}), flush=True)
    except RunParked as parked:
        print(json.dumps({"parked": parked.reason}), flush=True)
