"""Send requests to the HTTP API, and repeat them until they are answered."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from outlast.client.errors import ApiError, ServerUnavailable
from outlast.client.problems import error_of
from outlast.client.retry_policy import REPEATED, RetryPolicy
from outlast.codec.text import one_line
from outlast.errors import Backpressure, Draining, OutlastError, SettingsError, Unrecordable

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
WAIT_SECONDS_MAX = 60.0
"""How long one request may ask the server to wait."""
Parameters = Mapping[str, str | int | float | bool | Sequence[str] | None]


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    document: Any


class Unanswered(Exception):
    """An attempt got no answer, or one after which the request is repeated."""

    def __init__(
        self, error: OutlastError, *, may_be_done: bool, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.error = error
        self.may_be_done = may_be_done
        """Whether the server may have carried out the request."""
        self.headers = headers


class Transport:
    """Send each request until it is answered, with the same key."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        policy: RetryPolicy,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._http = http
        self.policy = policy
        self.pause = pause

    async def get(self, path: str, params: Parameters | None = None, *, wait: float = 0.0) -> Any:
        """Read a document. The server may take `wait` seconds longer than usual to answer."""
        return (await self.answer("GET", path, params=params, wait=wait)).document

    async def act(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        wait: float = 0.0,
        done_if: type[OutlastError] | None = None,
        repeats: bool = True,
    ) -> Any:
        """Send an action that is harmless to repeat, by itself or because of its key.

        After an attempt without an answer, the error `done_if` means that the action was done, and
        None is returned. Without `repeats`, the request is repeated only if it certainly was not
        done.
        """
        answer = await self.answer(
            method, path, body=body, key=key, wait=wait, done_if=done_if, repeats=repeats
        )
        return answer.document

    async def answer(
        self,
        method: str,
        path: str,
        *,
        params: Parameters | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: float = 0.0,
        done_if: type[OutlastError] | None = None,
        repeats: bool = True,
    ) -> Answer:
        """Send a request until it is answered. Raise ServerUnavailable if nothing answers."""
        request = self._request(method, path, params, body, key, wait)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait + self.policy.patience
        attempts, may_be_done = 0, False
        while True:
            attempts += 1
            try:
                response = await self._attempt(request)
                return Answer(response.status_code, _document(response))
            except Unanswered as unanswered:
                may_be_done = may_be_done or unanswered.may_be_done
                pause = self.policy.pause(attempts, unanswered.headers)
                if loop.time() + pause > until or (may_be_done and not repeats):
                    raise _given_up(method, unanswered, attempts, may_be_done) from unanswered
            except OutlastError as error:
                if may_be_done and done_if is not None and isinstance(error, done_if):
                    return Answer(200, None)
                raise
            await self.pause(pause)

    async def open(
        self, path: str, params: Parameters | None = None, *, wait: float = 0.0
    ) -> httpx.Response:
        """Make one attempt to open a stream, and return the answer. The caller closes it.

        `wait` is how many seconds longer than usual the server may be silent. Raise Unanswered if
        the request is to be repeated.
        """
        request = self._request("GET", path, params, None, None, wait)
        return await self._attempt(request, stream=True)

    async def wait_for_slot(self, wait: float, act: Callable[[float], Awaitable[T]]) -> T:
        """Repeat `act` while a queue is full, for up to `wait` seconds.

        One request waits for at most a minute, so that no proxy cuts it. `act` gets the seconds
        that it may wait.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            left = max(0.0, until - loop.time())
            try:
                return await act(min(left, WAIT_SECONDS_MAX))
            except Backpressure:
                if left <= WAIT_SECONDS_MAX:
                    raise

    def _request(
        self,
        method: str,
        path: str,
        params: Parameters | None,
        body: Mapping[str, Any] | None,
        key: str | None,
        wait: float,
    ) -> httpx.Request:
        import httpx

        headers = {} if key is None else {"idempotency-key": key}
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = _encoded(body)
        seconds = self.policy.timeout
        try:
            return self._http.build_request(
                method,
                path,
                params=dict(_parameters(params or {})),
                content=content,
                headers=headers,
                timeout=httpx.Timeout(seconds, read=seconds + wait),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise SettingsError(f"the request cannot be sent: {one_line(str(error))}.") from error

    async def _attempt(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        import httpx

        try:
            response = await self._http.send(request, stream=stream)
            if not response.is_success:
                await response.aread()
        except httpx.HTTPError as error:
            raise _unreached(request, error) from error
        if response.is_success:
            return response
        if stream:
            await response.aclose()
        status = response.status_code
        refusal = error_of(status, _json_of(response))
        if status in REPEATED and not isinstance(refusal, Backpressure):
            may_be_done = status >= 500 and not isinstance(refusal, Draining)
            raise Unanswered(refusal, may_be_done=may_be_done, headers=response.headers)
        raise refusal


def segment(text: str) -> str:
    """Return an id as one segment of a path."""
    encoded = quote(text, safe="")
    # A URL treats these two as folders, unless they are encoded.
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:
        raise Unrecordable(
            f"a value cannot be sent over HTTP: {error}. NaN and the infinities are not JSON."
        ) from error


def _parameters(params: Parameters) -> Iterator[tuple[str, str | list[str]]]:
    for name, value in params.items():
        if isinstance(value, (list, tuple)):
            yield name, [_text(one) for one in value]
        elif value is not None:
            yield name, _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unreached(request: httpx.Request, error: httpx.HTTPError) -> Exception:
    """Return the error of a request that was not answered."""
    import httpx

    host = request.url.copy_with(path="/", query=None)
    reason = one_line(str(error)) or type(error).__name__
    unavailable = ServerUnavailable(f"{host} did not answer: {reason}.")
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)) or _is_untrusted(
        error
    ):
        return unavailable
    never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    return Unanswered(unavailable, may_be_done=not isinstance(error, never_sent))


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether the server's certificate is not trusted, which a repeat does not change."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _given_up(method: str, last: Unanswered, attempts: int, may_be_done: bool) -> OutlastError:
    """Return the error of a request that was repeated for long enough."""
    if not isinstance(last.error, (ServerUnavailable, ApiError)) and not may_be_done:
        return last.error
    times = "once" if attempts == 1 else f"{attempts} times"
    text = f"{last.error} It was asked {times}."
    if method != "GET":
        text += (
            " The action may have been done. Repeat it with the same id or token: it is done once."
            if may_be_done
            else " Nothing was done."
        )
    return ServerUnavailable(text)


def _document(response: httpx.Response) -> Any:
    """Return the document of an answer. Raise ApiError if it has none."""
    if response.status_code == 204:
        return None
    found = _json_of(response)
    if not isinstance(found, dict):
        raise error_of(response.status_code, None)
    return found


def _json_of(response: httpx.Response) -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None
