"""Send the requests of an HTTP effect, and read the answers.

Every exception says whether the call happened.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from enum import IntEnum, auto
from functools import cache
from typing import TYPE_CHECKING, Any

from outlast import fencing
from outlast.api.effect import KEY
from outlast.effects.answers import (
    BODY_SHOWN_MAX,
    HTTPAnswer,
    HTTPNotSent,
    HTTPRefused,
    HTTPUnclear,
    Meaning,
    meaning,
)
from outlast.errors import NotInRun, OutlastError, StaleFence

if TYPE_CHECKING:
    import httpx

HeaderValue = str | Callable[[], str | Awaitable[str]]

LOCATION_SHOWN_MAX = 200


class RequestSender:
    """Send an effect's requests and read the answers."""

    def __init__(
        self,
        timeout: float,
        headers: Mapping[str, HeaderValue],
        statuses: Mapping[int, Meaning] | None,
        key_header: str,
        kept_headers: Collection[str],
        body_size_max: int,
        connect_timeout: float,
        client: Callable[[], httpx.AsyncClient] | None,
    ) -> None:
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._headers, self._statuses, self._key_header = headers, statuses, key_header
        self._kept = {name.lower() for name in kept_headers}
        self._body_size_max, self._client = body_size_max, client

    async def send(
        self,
        method: str,
        url: str,
        key: str | None,
        *,
        statuses: Mapping[int, Meaning] | None = None,
        **parts: Any,
    ) -> HTTPAnswer:
        """Send a request and read the answer, all within `timeout` seconds.

        httpx's own limits apply to a single read. Every exception says whether the call happened.
        """
        statuses = self._statuses if statuses is None else statuses
        sent = _Transmission()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._answer(method, url, key, statuses, parts, sent)
        except TimeoutError as error:
            failure = HTTPNotSent if sent.ended_before(error) else HTTPUnclear
            raise failure(method, url, 0, f"no complete answer within {self._timeout} s") from None

    async def _answer(
        self,
        method: str,
        url: str,
        key: str | None,
        statuses: Mapping[int, Meaning] | None,
        parts: dict[str, Any],
        sent: _Transmission,
    ) -> HTTPAnswer:
        httpx = _httpx(method, url)
        try:
            headers = httpx.Headers(parts.get("headers"))
            headers.update(await self._own_headers(key))
            client = self._client() if self._client is not None else self._usual_client()
            request = client.build_request(
                method,
                url,
                headers=headers,
                params=parts.get("params"),
                json=parts.get("json"),
                data=parts.get("form"),
                content=parts.get("content"),
                extensions={"trace": sent.see},
            )
        except Exception as error:
            # Its message may show a header, so only its type is reported.
            raise HTTPNotSent(
                method, url, 0, f"the request could not be made: {_kind(error)}"
            ) from None
        try:
            async with client:
                sent.begin()
                # A client that follows redirects would send the key, the fence and the secrets
                # elsewhere.
                answer = await client.send(request, stream=True, follow_redirects=False)
                try:
                    return await self._read(method, url, answer, statuses)
                finally:
                    await answer.aclose()
        except OutlastError:
            raise
        except httpx.LocalProtocolError:
            # Its message shows the header that cannot be sent.
            raise HTTPNotSent(method, url, 0, "one of its headers cannot be sent") from None
        except Exception as error:
            failure = HTTPNotSent if sent.ended_before(error) else HTTPUnclear
            raise failure(method, url, 0, _description(error)) from None

    async def _own_headers(self, key: str | None) -> dict[str, str]:
        own: dict[str, str] = {}
        for name, value in self._headers.items():
            given = value() if callable(value) else value
            own[name] = await given if inspect.isawaitable(given) else given
        # The plain function was called outside a run.
        with suppress(NotInRun):
            own.update(fencing.fence_headers())
        # KEY is not filled in outside a run. Sending it would make all such calls one to the
        # server.
        return own if key is None or key is KEY else {**own, self._key_header: key}

    def _usual_client(self) -> httpx.AsyncClient:
        import httpx

        limit = httpx.Timeout(self._timeout, connect=min(self._connect_timeout, self._timeout))
        return httpx.AsyncClient(verify=_certificates(), timeout=limit, follow_redirects=False)

    async def _read(
        self, method: str, url: str, answer: httpx.Response, statuses: Mapping[int, Meaning] | None
    ) -> HTTPAnswer:
        self._check_fence(answer)
        what = meaning(answer.status_code, statuses)
        size_max = self._body_size_max if what == "happened" else BODY_SHOWN_MAX
        body, is_cut = bytearray(), False
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > size_max:
                del body[size_max:]
                is_cut = True
                break
        if what == "happened":
            kept = {name: value for name, value in answer.headers.items() if name in self._kept}
            return HTTPAnswer.of(answer.status_code, kept, bytes(body), is_cut=is_cut)
        failure = HTTPRefused if what == "refused" else HTTPUnclear
        raise failure(
            method, url, answer.status_code, _redirect(answer) + body.decode(errors="replace")
        )

    @staticmethod
    def _check_fence(answer: httpx.Response) -> None:
        """Raise StaleFence if the server reports a younger fence in the fence header."""
        newest = answer.headers.get(fencing.FENCE_HEADER, "")
        sent = answer.request.headers.get(fencing.FENCE_HEADER, "")
        if (
            answer.status_code in (409, 412)
            and newest.isdigit()
            and sent.isdigit()
            and int(newest) > int(sent)
        ):
            raise StaleFence(str(answer.request.url), int(sent), int(newest))


class _Stage(IntEnum):
    """How far a request got."""

    NOT_BEGUN = auto()
    BEGUN = auto()
    """The client has it, and its transport has reported nothing."""
    CONNECTING = auto()
    """The transport has reported something, but not that it sends the request."""
    SENDING = auto()


class _Transmission:
    """Track how far a request got, as httpx's own transport reports it.

    If a transport reports nothing, its exceptions decide.
    """

    def __init__(self) -> None:
        self._stage = _Stage.NOT_BEGUN

    def begin(self) -> None:
        """Note that the client gets the request."""
        self._stage = _Stage.BEGUN

    async def see(self, event: str, _: Any) -> None:
        """Note what the transport reports."""
        sends = event.endswith("send_request_headers.started")
        self._stage = max(self._stage, _Stage.SENDING if sends else _Stage.CONNECTING)

    def ended_before(self, error: Exception) -> bool:
        """Return whether nothing of the request was sent."""
        import httpx

        before = (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.PoolTimeout,
            httpx.ProxyError,
            httpx.UnsupportedProtocol,
        )
        return self._stage in (_Stage.NOT_BEGUN, _Stage.CONNECTING) or isinstance(error, before)


def _redirect(answer: httpx.Response) -> str:
    """Return where a redirect leads, for an error's text. It is not followed."""
    if not answer.has_redirect_location:
        return ""
    where = answer.headers["location"][:LOCATION_SHOWN_MAX]
    return f"redirects are not followed, and this one leads to {where}; "


def _httpx(method: str, url: str) -> Any:
    try:
        import httpx
    except ImportError:
        raise HTTPNotSent(
            method, url, 0, "httpx is missing: pip install 'outlast[httpx]'"
        ) from None
    return httpx


@cache
def _certificates() -> Any:
    """Load the certificates once per process: reading them takes longer than a call."""
    import httpx

    return httpx.create_ssl_context()


def _kind(error: Exception) -> str:
    """Return the error's type, with its text only if that reveals no header.

    Texts of Outlast's own errors, about the URL, or naming a missing key are safe.
    """
    import httpx

    is_safe = isinstance(error, (httpx.InvalidURL, OutlastError, KeyError))
    return f"{type(error).__name__}: {error}" if is_safe else type(error).__name__


def _description(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
