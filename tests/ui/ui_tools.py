"""Serve the web UI of an Outlast in memory, and look at its pages as a browser does."""

import re
from contextlib import asynccontextmanager
from html.parser import HTMLParser

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Outlast, budget, effect, publish, receive, step, workflow
from outlast.http import ui
from support.waiting import WAIT_SECONDS

TOKENS = {
    "olga": ("operator", "operator-token-0123456789"),
    "sam": ("submitter", "submitter-token-0123456789"),
    "sue": ("submitter", "submitter-token-9876543210"),
    "vera": ("viewer", "viewer-token-0123456789"),
}
"""The visitors of the tests, each with its role and token."""
ITEMS = [f"{name}:{role}:{token}" for name, (role, token) in TOKENS.items()]
VOID = {"meta", "link", "input", "br", "hr", "img"}
PAGE_BYTES_MAX = 100_000


@step
async def double(number: int) -> int:
    return number * 2


@workflow
async def doubling(number: int, note: str = "") -> int:
    return await double(number)


@workflow
async def waiting(question: str) -> str:
    return question + str(await receive("answer"))


@workflow
async def failing(text: str) -> None:
    raise ValueError(text)


@step
async def told(text: str) -> str:
    publish("answer", text)
    return text


@workflow
async def telling(text: str) -> str:
    return await told(text)


@effect(timeout=0.1, undo=None)
async def charge(cents: int) -> str:
    raise ConnectionError("the answer was lost")


@workflow
async def paying(cents: int) -> str:
    return await charge(cents)


spend = budget("answer", usd=1)


@step
async def ask_paid(number: int) -> int:
    async with spend.use(usd=1):
        return number


@workflow
async def spending() -> int:
    return await ask_paid(1) + await ask_paid(2)


WORKFLOWS = [spending, doubling, waiting, failing, telling, paying]


class Browser(httpx.AsyncClient):
    """A browser that sends what browsers send, and follows redirects of this site."""

    def __init__(self, web, *, base="http://server", **options):
        super().__init__(
            transport=httpx.ASGITransport(web, client=("203.0.113.9", 1)),
            base_url=base,
            timeout=WAIT_SECONDS,
            follow_redirects=True,
            **options,
        )

    async def submit(self, path, **fields):
        """Submit a form, as a page of this site does."""
        headers = {"origin": "http://server", "sec-fetch-site": "same-origin"}
        return await self.post(path, data=fields, headers=headers)

    async def sign_in(self, name, root=""):
        answer = await self.submit(f"{root}/login", token=TOKENS[name][1], next="/runs")
        assert answer.status_code == 200, answer.text
        return self

    async def act(self, path, **fields):
        """Open the page of a form, fill it in, and submit it."""
        page = Html(await self.get(path))
        given = {**page.hidden, **fields}
        return await self.submit(path.partition("?")[0], **given)


class Html(HTMLParser):
    """A page: its tags, its text and its hidden fields. It checks what every page promises."""

    def __init__(self, answer):
        super().__init__(convert_charrefs=True)
        self.answer = answer
        self.tags, self.text, self.hidden, self.stack = [], "", {}, []
        assert answer.headers["content-type"].startswith("text/html")
        assert len(answer.content) < PAGE_BYTES_MAX
        self.feed(answer.text)
        self.close()
        assert self.stack == [], "every element is closed"
        self._check()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)
        found = dict(attrs)
        if tag == "input" and found.get("type") == "hidden":
            self.hidden[found["name"]] = found.get("value", "")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [found for one, found in self.tags if one == tag]

    def links(self):
        return [one["href"] for one in self.all("a")]

    def _check(self):
        scripts = self.all("script")
        assert len(scripts) == 1
        assert "src" in scripts[0]
        assert self.all("style") == []
        for _, found in self.tags:
            assert not any(name == "style" or name.startswith("on") for name in found), found
        ids = [found["id"] for _, found in self.tags if "id" in found]
        assert len(ids) == len(set(ids)), "ids are unique"
        for tag in ("main", "h1", "title"):
            assert len(self.all(tag)) >= 1, tag
        labelled = {one.get("for") for one in self.all("label")}
        for one in (*self.all("input"), *self.all("textarea"), *self.all("select")):
            shown = one.get("type") != "hidden" and "hidden" not in one
            if shown and "aria-label" not in one:
                assert one.get("id") in labelled, one
        for one in self.all("section"):
            assert one.get("aria-label"), one


def runs_in(page):
    """Return the ids of the runs that a page links to, in order."""
    found = [re.fullmatch(r".*/runs/([^/?]+)", href) for href in page.links()]
    return list(dict.fromkeys(one[1] for one in found if one))


class Visited:
    """An open Outlast, its UI, and a browser for each caller."""

    def __init__(self, app, web, site, root):
        self.app, self.web, self.site, self.root = app, web, site, root

    def browser(self, **options):
        return Browser(self.web, **options)

    async def as_(self, name):
        return await Browser(self.web).sign_in(name, self.root)

    async def page(self, browser, path):
        return Html(await browser.get(self.root + path))


@asynccontextmanager
async def visiting(store="memory:", *, worker=True, root="", settings=None, **options):
    """Yield a `Visited`. `root` mounts the UI in another web app."""
    app = Outlast(store, worker=worker, workflows=WORKFLOWS, **(settings or {}))
    if "authenticate" not in options:
        options.setdefault("tokens", ITEMS)
    site = ui(app, **options)
    web = Starlette(routes=[Mount(root, site)]) if root else site
    async with app:
        yield Visited(app, web, site, root)
