"""Build the web UI of an Outlast as a Starlette app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from outlast.http.rest.encoded_paths import EncodedPaths
from outlast.http.rest.problems import Problem
from outlast.http.web import pages
from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import STATIC, static_file
from outlast.http.web.signing_in import SignIn
from outlast.http.web.site import Site, path_of
from outlast.http.web.visitors import Visitor, Visitors
from outlast.http.web.whole_values import TEXTS, ReadText

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Without the origin, browsers would submit forms with "Origin: null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def web_application(api: FastAPI, visitors: Visitors) -> Starlette:
    """Return the UI of an API whose callers are those that `visitors` identifies."""
    site = Site(api, visitors)
    routes = [Route("/static/{name}", _static)]
    if visitors.sign_in_is_ours:
        signing_in = SignIn(site)
        routes += [
            Route("/login", signing_in.show),
            Route("/login", signing_in.submit, methods=["POST"]),
            Route("/logout", site.guarded(signing_in.sign_out), methods=["POST"]),
        ]
    for path, make in pages.PAGES.items():
        routes.append(Route(path, site.page(make)))
    for path, (make, news) in pages.LIVE_PAGES.items():
        routes.append(Route(path, site.page(make, is_live=True)))
        routes.append(Route(f"/live{path}", site.live(make, news)))
    for path, (make, submit) in pages.FORMS.items():
        show, post = site.form(make, submit)
        routes += [Route(path, show), Route(path, post, methods=["POST"])]
    for path, read in TEXTS.items():
        routes.append(Route(path, site.guarded(_text(site, read))))
    routes.append(Route("/live/streams/{id}/{name}", site.guarded(_stream(site))))
    web = Starlette(
        routes=routes,
        middleware=[Middleware(SafeHeaders), Middleware(EncodedPaths)],
        exception_handlers={HTTPException: _problem_page(site)},
    )
    web.router.redirect_slashes = False
    return web


class SafeHeaders:
    """Add the headers that keep pages safe, unless an answer has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        await self.app(scope, receive, send_safely)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return PlainTextResponse("There is no such file.", 404)
    age = "public, max-age=31536000, immutable" if request.url.query else "no-cache"
    return Response(static_file(name), media_type=STATIC[name], headers={"cache-control": age})


def _text(site: Site, read: ReadText) -> Any:
    async def show(request: Request, visitor: Visitor) -> Response:
        text = await read(CallerApi(site.api, visitor.caller), path_of(request))
        # Text, whatever it looks like.
        policy = {"content-security-policy": "default-src 'none'; sandbox"}
        return PlainTextResponse(text, headers=policy)

    return show


def _stream(site: Site) -> Any:
    async def follow(request: Request, visitor: Visitor) -> Response:
        path = path_of(request)
        return _Forwarded(
            CallerApi(site.api, visitor.caller),
            ("runs", path["id"], "streams", path["name"]),
            request,
        )

    return follow


class _Forwarded(Response):
    """An answer that the API gives itself."""

    def __init__(self, api: CallerApi, segments: tuple[str, ...], request: Request) -> None:
        super().__init__()
        self._api = api
        self._segments = segments
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await self._api.forward(self._segments, receive, self._request.headers, send)


def _problem_page(site: Site) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)

        async def show(_request: Request, _visitor: Visitor) -> Response:
            raise Problem(error.status_code, str(error.detail), next="Use a link in this UI.")

        return await site.guarded(show)(request)

    return answer
