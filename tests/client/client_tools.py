"""Serve the HTTP API of an Outlast in this process on a real socket, behind a proxy that cuts connections."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

from outlast import Outlast, budget, effect, publish, receive, sleep, step, workflow
from outlast.client import Client
from outlast.http.api_server import ApiServer
from support.fault_proxy import FaultProxy
from support.waiting import WAIT_SECONDS

TOKENS = {
    "olga": ("operator", "operator-token-0123456789"),
    "sam": ("submitter", "submitter-token-0123456789"),
    "vera": ("viewer", "viewer-token-0123456789"),
}
"""The callers of the tests, each with its role and token."""


@dataclass
class Report:
    topic: str
    words: int


class Unlucky(Exception):
    """A failure of a program's own, with an attribute."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


@step
async def count(topic: str) -> int:
    return len(topic)


@workflow
async def reporting(topic: str, /, *more: str, loud: bool = False) -> Report:
    words = await count(" ".join([topic, *more]))
    return Report(topic.upper() if loud else topic, words)


@workflow
async def asking(question: str) -> str:
    return f"{question} {await receive('answer')}"


@workflow
async def failing(number: int) -> None:
    raise Unlucky(number)


@workflow
async def napping(seconds: float) -> None:
    await sleep(seconds)


@workflow
async def speaking(words: list[str]) -> str:
    for word in words:
        await publish("answer", word)
        if word == "wait":
            await receive("go")
    return "".join(words)


@effect(timeout=0.1, undo=None)
async def charge(cents: int) -> str:
    raise ConnectionError("the answer was lost")


@workflow
async def paying(cents: int) -> str:
    return await charge(cents)


spend = budget("answer", usd=1, tokens=100)


@step
async def ask_paid(number: int) -> int:
    async with spend.use(usd=1):
        return number


@workflow
async def spending() -> int:
    return await ask_paid(1) + await ask_paid(2)


WORKFLOWS = [spending, reporting, asking, failing, napping, speaking, paying]


class Remote:
    """An open Outlast, its API on a port, a proxy in front of it, and clients."""

    def __init__(self, app, server, proxy):
        self.app, self.server, self.proxy = app, server, proxy
        self.url = f"http://127.0.0.1:{proxy.port}"

    def client(self, name="olga", **options):
        quick = {"backoff": 0.01, "backoff_max": 0.1, "patience": WAIT_SECONDS, "timeout": 30.0}
        return Client(self.url, token=TOKENS[name][1], **(quick | options))


@asynccontextmanager
async def remote(store="memory:", *, worker=True, **settings):
    """Yield a `Remote`."""
    tokens = ",".join(f"{name}:{role}:{token}" for name, (role, token) in TOKENS.items())
    quick = {"grace": 1.0, "effect_margin": 0.0}
    app = Outlast(
        store, worker=worker, workflows=WORKFLOWS, api_tokens=tokens, **(quick | settings)
    )
    server = ApiServer(app, "127.0.0.1:0")
    async with app:
        server.start()
        proxy = FaultProxy(int(server.url.rpartition(":")[2]))
        try:
            yield Remote(app, server, proxy)
        finally:
            proxy.close()
            await server.stop()


def run_remote(scenario, **settings):
    """Run a coroutine function with a `Remote` and an open client of the operator."""

    async def main():
        async with remote(**settings) as found, found.client() as client:
            return await scenario(found, client)

    return asyncio.run(main())
