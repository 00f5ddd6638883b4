"""Make an HTTP call as an effect, with an `Idempotency-Key`, the run's fence, and a clear outcome.

    from outlast.effects import http_effect

    charge = http_effect(
        "charge",
        timeout=30,
        # The server does nothing twice under one key.
        idempotent=True,
        # Never recorded.
        headers={"Authorization": lambda: f"Bearer {os.environ['PAYMENTS_TOKEN']}"},
    )

    @charge.compensate
    async def refund(answer: HTTPAnswer, key: str = KEY) -> None:
        refund = {"charge": answer.json()["id"]}
        await charge.request("POST", f"{API}/refunds", json=refund, key=key)

    # in a workflow
    answer = await charge("POST", f"{API}/charges", json={"amount": 10})

The outcome says whether the call happened. Each act opens its own connection: a server may close a
kept-alive one just as the request is sent, and then it is unknown whether the call happened. This
costs a handshake, and avoids parking runs.

In a sync workflow, write an `@effect` whose body is `return asyncio.run(charge.request("POST", url,
json=..., key=key))`.

The first act imports httpx. Extra: `outlast[httpx]`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from outlast import fencing
from outlast.api.effect import _NEEDED, KEY, Effect, Happened
from outlast.api.step import Awaits
from outlast.effects.answers import (
    HTTPAnswer,
    HTTPNotSent,
    HTTPRefused,
    Meaning,
)
from outlast.effects.http_sender import HeaderValue, RequestSender
from outlast.errors import SettingsError

if TYPE_CHECKING:
    import httpx

KEY_HEADER = "Idempotency-Key"
_VERIFIED: Mapping[int, Meaning] = dict.fromkeys(range(300, 400), "unclear")
"""A redirect of a verify's GET, for example to a login page, says nothing about the call."""
KEPT_HEADERS = (
    "content-type",
    "date",
    "etag",
    "last-modified",
    "location",
    "request-id",
    "retry-after",
    "x-request-id",
)
"""Headers of an answer that are recorded. Cookies are not among them."""
CONNECT_SECONDS = 5.0
BODY_SIZE_MAX = 1_000_000
"""Bytes of an answer's body that are recorded. The rest is cut off."""

DOC = """Make an HTTP call once: `await NAME("POST", url, json=...)` in a workflow.

It returns an `HTTPAnswer`. The key is sent as `Idempotency-Key`, together with the run's fence.
Redirects are not followed. The status of the answer decides:

- 2xx, 303, 304: it happened.
- 4xx except 408, 409 and 499, and 300, 305 to 308: it did not happen (HTTPRefused).
- Nothing was sent: it did not happen (HTTPNotSent).
- 5xx, a lost connection, everything else: the outcome is unknown (HTTPUnclear).

What it does not cover:

- An unknown outcome is settled by `verify_url` or `@NAME.verify`, by `idempotent=True` if the
  server promises that, otherwise by a person.
- A 4xx counts as proof that the call did not happen. If the server, or a proxy in front of it,
  may send one after it has acted, pass `statuses=`.
- The timeout must cover what the server may still do after the connection is gone. Outlast cannot
  detect that.
- The arguments are recorded, and so is the answer, cut to `body_size_max` bytes and
  `kept_headers`. Pass secrets in `headers=` of `http_effect`; a header that looks like a secret
  is refused in a call.
- The fence has no effect unless the server checks it. Each call has its own connection. Bodies are
  neither streamed nor sent from a file.
"""
"""The `help()` text of an HTTP effect."""


_SECRET = re.compile(
    r"authori[sz]ation|cookie|token|secret|passw|api-?key|credential", re.IGNORECASE
)
_OURS = frozenset(name.lower() for name in (KEY_HEADER, fencing.RUN_HEADER, fencing.FENCE_HEADER))


class HTTPEffect(Effect[..., HTTPAnswer]):
    """An effect that makes an HTTP call, made by `http_effect`.

    `await charge("POST", url, json=...)` in a workflow returns an `HTTPAnswer`. A status that does
    not mean `happened` raises: see `outlast.effects.answers`.
    """

    def __init__(self, fn: Callable[..., Any], sender: RequestSender, **options: Any) -> None:
        super().__init__(fn, failed_on=(HTTPNotSent, HTTPRefused), **options)
        self._sender = sender

    def __call__(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        form: dict[str, str] | None = None,
        content: bytes | None = None,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        key: str = KEY,
    ) -> Awaits[HTTPAnswer]:
        """Make the call. Everything given here is recorded.

        Raise ValueError, before anything is recorded, for a header that looks like a secret, or a
        URL with a password.
        """
        check_recorded(url, headers or {})
        if (json is not None) + (form is not None) + (content is not None) > 1:
            raise ValueError("pass only one of json, form and content.")
        options = {
            "json": json,
            "form": form,
            "content": content,
            "params": params,
            "headers": headers,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return self._call((method, url), given if key is KEY else {**given, "key": key})

    async def request(
        self,
        method: str,
        url: str,
        *,
        key: str | None = None,
        json: Any = None,
        form: dict[str, str] | None = None,
        content: bytes | None = None,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPAnswer:
        """Send a request that is not recorded, with this effect's headers, client and statuses.

        Use it in the bodies of the effect's verify and compensation. It carries the key, if given,
        and the fence of the current run.
        """
        return await self._sender.send(
            method, url, key, json=json, form=form, content=content, params=params, headers=headers
        )


def http_effect(
    name: str,
    *,
    timeout: float,
    retries: int = 0,
    backoff: float = 1.0,
    backoff_max: float = 60.0,
    idempotent: bool = False,
    headers: Mapping[str, HeaderValue] | None = None,
    statuses: Mapping[int, Meaning] | None = None,
    verify_url: str | None = None,
    key_header: str = KEY_HEADER,
    kept_headers: Collection[str] = KEPT_HEADERS,
    body_size_max: int = BODY_SIZE_MAX,
    connect_timeout: float = CONNECT_SECONDS,
    client: Callable[[], httpx.AsyncClient] | None = None,
    undo: None = _NEEDED,
) -> HTTPEffect:
    """Make an effect of HTTP calls.

    Call this at the top of a module: after a crash the effect is found again by its name.

    - `timeout`, `retries`, `backoff`, `backoff_max`, `undo=None`: as for `@effect`. `timeout` must
      cover what the server may still do after the connection is gone: nothing is verified or
      retried until it has passed (plus `effect_margin`).
    - `idempotent`: the server does nothing twice under one key. If it does not promise that, give
      `verify_url` or `@it.verify`, or leave the decision to a person.
    - `headers`: sent with each call and never recorded. A value may be a function, called (and
      awaited) for each act: use this for secrets.
    - `statuses`: what a status means where that differs from `answers.meaning`: `{404: "happened",
      409: "refused"}`.
    - `verify_url`: must contain `{key}`, which stands for the key. If GET returns a status that
      means happened, the call happened and this answer is its result. 404 means it did not happen.
    - `key_header`: the name of the key's header.
    - `kept_headers`, `body_size_max`: what is recorded of an answer.
    - `connect_timeout`: seconds for one attempt to connect.
    - `client`: makes the httpx.AsyncClient of an act (certificates, proxies, `auth=`). It is closed
      after the act. Redirects are never followed, whatever the client's settings.
    """
    if find_spec("httpx") is None:
        raise SettingsError("an HTTP effect needs httpx: pip install 'outlast[httpx]'.")
    if client is not None and not callable(client):
        raise SettingsError(
            f"client of HTTP effect {name!r} must be a function that returns an "
            f"httpx.AsyncClient, not {client!r}: client=lambda: httpx.AsyncClient(...)."
        )
    # Without the key, it would find other calls.
    if verify_url is not None and "{key}" not in verify_url:
        raise SettingsError(
            f"verify_url of effect {name} must contain the key, or it would find any call: "
            '"https://…/charges?key={key}" (in an f-string {{key}}).'
        )
    sender = RequestSender(
        timeout,
        headers or {},
        statuses,
        key_header,
        kept_headers,
        body_size_max,
        connect_timeout,
        client,
    )
    return _make(
        name,
        sender,
        sys._getframe(1).f_globals.get("__name__", __name__),
        verify_url,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        backoff_max=backoff_max,
        idempotent=idempotent,
        undo=undo,
    )


def _make(
    name: str, sender: RequestSender, module: str, verify_url: str | None = None, **options: Any
) -> HTTPEffect:
    async def act(
        method: str,
        url: str,
        *,
        json: Any = None,
        form: dict[str, str] | None = None,
        content: bytes | None = None,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        key: str = KEY,
    ) -> HTTPAnswer:
        return await sender.send(
            method, url, key, json=json, form=form, content=content, params=params, headers=headers
        )

    async def ask(key: str = KEY) -> Happened[HTTPAnswer] | None:
        assert verify_url is not None
        try:
            url = verify_url.replace("{key}", quote(key, safe=""))
            return Happened(await sender.send("GET", url, None, statuses=_VERIFIED))
        except HTTPRefused as refused:
            if refused.status == 404:
                return None
            raise

    act.__module__, act.__qualname__, act.__name__ = module, name, name
    act.__doc__ = DOC.replace("NAME", name)
    made = HTTPEffect(act, sender, name=name, **options)
    if verify_url is not None:
        made.verify(ask)
    return made


def check_recorded(url: str, headers: Mapping[str, str]) -> None:
    """Raise ValueError for what must not be recorded, and for the effect's own headers."""
    for name in headers:
        if name.lower() in _OURS:
            raise ValueError(f"the header {name} is set by the effect itself. Leave it out.")
        if _SECRET.search(name):
            raise ValueError(
                f"the header {name} looks like a secret, and the arguments of an effect are "
                f"recorded. Pass it to http_effect(..., headers={{{name!r}: lambda: ...}}), which "
                "records nothing."
            )
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            "the URL contains a password, and the arguments of an effect are recorded."
        )


http_call = _make(
    "http_call",
    RequestSender(30.0, {}, None, KEY_HEADER, KEPT_HEADERS, BODY_SIZE_MAX, CONNECT_SECONDS, None),
    __name__,
    timeout=30.0,
)
"""`await http_call("POST", url, json=...)`: 30 seconds, no headers of its own.

It does not assume that the server supports `Idempotency-Key`, so after a crash during the call a
person decides. For everything else, make an effect with `http_effect`.
"""
