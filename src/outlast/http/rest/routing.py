"""Declare routes and who may use them, and turn errors into answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from outlast.errors import OutlastError
from outlast.http.rest.access import check_role
from outlast.http.rest.answers import ProblemDocument
from outlast.http.rest.calls import Api, ApiCall
from outlast.http.rest.problems import MEDIA_TYPE, Problem, invalid, problem_of
from outlast.http.rest.roles import Access

log = logging.getLogger("outlast.http")

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
ROLE = "x-outlast-access"
"""The name of a route's access in the OpenAPI document."""


class _Route(NamedTuple):
    method: str
    path: str
    access: Access
    endpoint: Callable[..., Any]
    options: dict[str, Any]


class Routes:
    """Collect the routes of one module."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._routes: list[_Route] = []

    def add(
        self,
        method: str,
        path: str,
        access: Access,
        answer: type[BaseModel] | None = None,
        *,
        status: int = 200,
        also: dict[int, type[BaseModel]] | None = None,
        problems: tuple[int, ...] = (),
        media_type: str | None = None,
        nothing: bool = False,
        operation: str | None = None,
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare a route: who may use it, and what it answers.

        `also` are further statuses that are no errors; with `nothing`, 204 is one. Every route may
        answer 401, 403, 422, 429 and 503. `operation` is the id of a route that shares its endpoint
        with another.
        """

        def declare(endpoint: Endpoint) -> Endpoint:
            documented: dict[int | str, dict[str, Any]] = {
                code: {
                    "description": "A problem",
                    "content": {
                        MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
                    },
                }
                for code in (400, 401, 403, 422, 429, 500, 503, *problems)
            }
            documented[status] = {"description": "Done"}
            if answer is not None:
                documented[status]["model"] = answer
            elif media_type is not None:
                documented[status]["content"] = {media_type: {"schema": {"type": "string"}}}
            for code, model in (also or {}).items():
                done = "Done before" if code == 200 else "Not yet"
                documented[code] = {"description": done, "model": model}
            if nothing:
                documented[204] = {"description": "Nothing more will come"}
            options = {
                "responses": documented,
                "status_code": status,
                "openapi_extra": {ROLE: access.name.lower()},
                "tags": [self._tag],
                "response_model": None,
                "operation_id": operation or endpoint.__name__,
            }
            self._routes.append(_Route(method, path, access, endpoint, options))
            return endpoint

        return declare

    def add_to(self, web: FastAPI) -> None:
        """Add the routes to the app."""
        for route in self._routes:
            web.router.add_api_route(
                route.path,
                route.endpoint,
                methods=[route.method],
                route_class_override=_guarded(route.access),
                **route.options,
            )


def _guarded(access: Access) -> type[APIRoute]:
    class GuardedRoute(APIRoute):
        """Identify the caller before reading the body, and turn errors into answers."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def guarded(request: Request) -> Response:
                return await _answered(handle, request, access)

            return guarded

    return GuardedRoute


async def _answered(
    handle: Callable[[Request], Coroutine[Any, Any, Response]], request: Request, access: Access
) -> Response:
    api: Api = request.app.state.outlast_api
    call: ApiCall | None = None
    try:
        caller = await api.gate.caller(request)
        check_role(caller, access)
        engine = api.engine()
        call = request.state.call = ApiCall(api, engine, caller)
        settings = engine.settings
        limited = LimitedRequest(
            request.scope,
            request.receive,
            bytes_max=settings.api_body_max,
            seconds_max=settings.api_body_timeout,
        )
        return await handle(limited)
    except Problem as problem:
        return problem.response()
    except RequestValidationError as error:
        return _of_validation(error).response()
    except HTTPException as error:
        return of_http(error).response()
    except OutlastError as error:
        masked = call is None or call.is_own_only or call.is_masked
        known = problem_of(error, masked=masked)
        if known.status == 500:
            log.exception("Failed to answer %s %s.", request.method, access.name)
        return known.response()
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception:
        # The path has ids, which are no secrets, but may be long.
        log.exception("Failed to answer %s %s.", request.method, access.name)
        return Problem(
            500,
            "The server failed to answer.",
            next="See the log of the server.",
            kind="InternalError",
        ).response()


class LimitedRequest(Request):
    """A request whose body has a limit in bytes and in seconds, and is strict JSON."""

    def __init__(self, scope: Any, receive: Any, *, bytes_max: int, seconds_max: float) -> None:
        super().__init__(scope, receive)
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size = 0
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._bytes_max:
            self._refuse()
        async for chunk in super().stream():
            size += len(chunk)
            if size > self._bytes_max:
                self._refuse()
            yield chunk

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(self._seconds_max):
                return await super().body()
        except TimeoutError:
            raise HTTPException(
                408, f"The body was not complete after {self._seconds_max:g} s."
            ) from None

    async def json(self) -> Any:
        if not hasattr(self, "_parsed"):
            self._parsed = _strict_json(await self.body())
        return self._parsed

    def _refuse(self) -> NoReturn:
        raise HTTPException(413, f"The body is longer than {self._bytes_max:,} bytes.")


def _strict_json(body: bytes) -> Any:
    """Parse JSON. NaN and the infinities are not JSON."""

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(body, parse_constant=no_constant)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise HTTPException(400, "The JSON is nested too deeply.") from None
    except ValueError as error:
        # A constant, a number with too many digits, or text that is not UTF-8.
        raise HTTPException(400, f"The body is not JSON: {error}") from None


_HTTP_NEXT = {
    400: "Send a body that is JSON, with Content-Type: application/json.",
    404: "/v1/openapi.json lists the routes.",
    405: "/v1/openapi.json lists the methods of each route.",
    408: "Send the body faster.",
    413: "Send less, or raise the limit on the server: OUTLAST_API_BODY_MAX.",
}


def of_http(error: HTTPException) -> Problem:
    """Return the problem that an error of the web framework is."""
    return Problem(
        error.status_code,
        str(error.detail),
        next=_HTTP_NEXT.get(error.status_code, "Correct the request."),
        headers=error.headers,
    )


def _of_validation(error: RequestValidationError) -> Problem:
    found = [(list(one["loc"]), str(one["msg"])) for one in error.errors()]
    first = ".".join(map(str, found[0][0])) if found else "request"
    more = f" {len(found) - 1} more are wrong." if len(found) > 1 else ""
    return invalid(found, f"{first}: {found[0][1] if found else 'it is wrong'}.{more}")


def _current(request: Request) -> ApiCall:
    call: ApiCall = request.state.call
    return call


Call = Annotated[ApiCall, Depends(_current)]

__all__ = ["Call", "ProblemDocument", "Routes", "of_http"]
