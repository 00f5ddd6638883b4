"""Record the errors of the OpenAI client so that they come back as themselves."""

from __future__ import annotations

from typing import Any

import httpx2
import openai


class OpenAIErrorCodec:
    """Rebuild API errors: a workflow can catch `openai.RateLimitError` and read its status."""

    def encode(self, error: BaseException) -> Any:
        """Return what rebuilds the error, or None for errors of other libraries."""
        if type(error).__module__.partition(".")[0] != "openai":
            return None
        data: dict[str, Any] = {"kind": type(error).__name__}
        if isinstance(error, openai.APITimeoutError):
            return {**data, **_request(error.request)}
        if isinstance(error, openai.APIConnectionError):
            return {**data, **_request(error.request), "message": error.message}
        if isinstance(error, openai.APIStatusError):
            response = error.response
            return {
                **data,
                **_request(error.request),
                "message": error.message,
                "status": response.status_code,
                "headers": _headers(response),
                "body": error.body,
            }
        return None

    def decode(self, data: Any) -> BaseException:
        """Rebuild the error."""
        kind = getattr(openai, data["kind"])
        request = httpx2.Request(data["method"], data["url"])
        if issubclass(kind, openai.APITimeoutError):
            return _error(kind(request))
        if issubclass(kind, openai.APIConnectionError):
            return _error(kind(message=data["message"], request=request))
        response = httpx2.Response(data["status"], headers=data["headers"], request=request)
        return _error(kind(data["message"], response=response, body=data["body"]))


KEPT = ("retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
"""The headers that are recorded: those that say when to try again. Others may hold secrets."""


def _headers(response: Any) -> dict[str, str]:
    return {name: response.headers[name] for name in KEPT if name in response.headers}


def _request(request: Any) -> dict[str, str]:
    """Return the method and the address of a request, without its query."""
    return {"method": request.method, "url": str(request.url).partition("?")[0]}


def _error(error: Any) -> BaseException:
    assert isinstance(error, BaseException)
    return error
