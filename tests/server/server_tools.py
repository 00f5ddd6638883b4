"""Serve the HTTP API of an Outlast in memory, over httpx's ASGI transport."""

from contextlib import asynccontextmanager

import httpx

from outlast import Happened, Outlast, effect, receive, step, workflow
from outlast.http import api
from support.waiting import WAIT_SECONDS

TOKENS = {
    "olga": ("operator", "operator-token-0123456789"),
    "sam": ("submitter", "submitter-token-0123456789"),
    "sue": ("submitter", "submitter-token-9876543210"),
    "vera": ("viewer", "viewer-token-0123456789"),
}
"""The callers of the tests, each with its role and token."""
ITEMS = [f"{name}:{role}:{token}" for name, (role, token) in TOKENS.items()]


@step
async def double(number: int) -> int:
    return number * 2


@workflow
async def doubling(number: int, note: str = "") -> int:
    """Double a number."""
    return await double(number)


@workflow
async def waiting(question: str) -> str:
    """Wait for an answer."""
    return question + await receive("answer")


@workflow
async def failing(secret: str) -> None:
    raise ValueError(f"not with {secret}")


@workflow
async def parent(number: int) -> int:
    """Have a child double a number."""
    return await doubling(number)


@effect(timeout=0.1, undo=None)
async def charge(cents: int) -> str:
    raise ConnectionError("the answer was lost")


@workflow
async def paying(cents: int) -> str:
    """Charge a card whose bank does not answer."""
    return await charge(cents)


bank = {"knows": False, "asked": 0}
"""Whether the bank can tell what became of a payment, and how often it was asked."""


@effect(timeout=0.1, undo=None)
async def pay(cents: int) -> str:
    raise ConnectionError("the answer was lost")


@pay.verify
async def find_payment(cents: int) -> Happened[str] | None:
    bank["asked"] += 1
    if not bank["knows"]:
        raise ConnectionError("the bank is closed")
    return Happened("receipt of bank")


@workflow
async def paying_carefully(cents: int) -> str:
    """Charge a card, and ask the bank if that was unclear."""
    return await pay(cents)


gates = {}
"""Events that steps wait for, by name."""


@step
async def pass_gate(name: str) -> str:
    await gates[name].wait()
    return name


@workflow
async def gated(name: str) -> str:
    """Wait for a gate in a step."""
    return await pass_gate(name)


WORKFLOWS = [doubling, waiting, failing, parent, paying, paying_carefully, gated]


class Client(httpx.AsyncClient):
    """A client of the API that sends the token of one caller."""

    def __init__(self, web, name=None, *, peer="203.0.113.9", base="http://server", **options):
        headers = {} if name is None else {"authorization": f"Bearer {TOKENS[name][1]}"}
        super().__init__(
            transport=httpx.ASGITransport(web, client=(peer, 1)),
            base_url=base,
            headers=headers,
            timeout=WAIT_SECONDS,
            **options,
        )


class Served:
    """An open Outlast, its API, and a client for each caller."""

    def __init__(self, app, web):
        self.app, self.web = app, web
        for name in TOKENS:
            setattr(self, name, Client(web, name))
        self.nobody = Client(web)

    async def done(self, id):
        """Wait until a run has ended, and return the answer of /result."""
        while True:
            answer = await self.olga.get(f"/v1/runs/{id}/result?wait=5")
            if answer.status_code == 200:
                return answer.json()


@asynccontextmanager
async def serving(store="memory:", *, worker=True, mounted=None, settings=None, **options):
    """Yield a `Served`. `mounted` wraps the API in another web app."""
    app = Outlast(store, worker=worker, workflows=WORKFLOWS, **(settings or {}))
    if not {"authenticate", "insecure_loopback"} & set(options):
        options.setdefault("tokens", ITEMS)
    web = api(app, **options)
    async with app:
        yield Served(app, web if mounted is None else mounted(web))
