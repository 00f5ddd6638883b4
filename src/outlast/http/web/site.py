"""Answer the requests for pages: identify the visitor, make the page, render it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from outlast.http.rest.calls import ApiCall
from outlast.http.rest.encoded_paths import decoded
from outlast.http.rest.problems import Problem
from outlast.http.web.forms import CSRF, Form, check_csrf, read_form
from outlast.http.web.inner_api import CallerApi, Refusal
from outlast.http.web.live import LiveParts, LiveStream, every_tick
from outlast.http.web.rendering import Links, Page, render_live, render_page
from outlast.http.web.visitors import Visitor, Visitors, set_cookie

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("outlast.http")

Path: TypeAlias = dict[str, str]
MakePage: TypeAlias = Callable[[CallerApi, Path, QueryParams], Awaitable[Page]]
NewsOf: TypeAlias = Callable[[CallerApi, Path], AsyncIterator[Any]]
DONE = "done"
"""The parameter with the name of a notice."""
NOTICES = {
    "message": "The message was sent.",
    "cancel": "The cancellation was requested.",
    "retry": "The run was queued again.",
    "resume": "The run was queued again.",
    "decide": "The effect was decided.",
    "limits": "The limits were set.",
    "queue_paused": "The queue was paused.",
    "queue_resumed": "The queue was resumed.",
    "drain": "The worker was asked to drain.",
    "delete": "It was deleted.",
    "schedule": "The schedule was changed.",
    "trigger": "A run of the schedule was submitted.",
}


class Done(NamedTuple):
    """The outcome of a form: where to go, and the name of the notice."""

    segments: tuple[str, ...]
    notice: str


Submit: TypeAlias = Callable[[CallerApi, Path, Form], Awaitable[Done | Page]]


class Site:
    """The pages of one mount."""

    def __init__(self, api: FastAPI, visitors: Visitors) -> None:
        self.api = api
        self.visitors = visitors
        self._parts = LiveParts()

    def page(
        self, make: MakePage, *, is_live: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page."""

        async def show(request: Request, visitor: Visitor) -> Response:
            page = await make(self._as(visitor), path_of(request), request.query_params)
            live = self._live_url(request) if is_live else None
            return await self.show(request, page, visitor, live_url=live)

        return self.guarded(show)

    def form(
        self, make: MakePage, submit: Submit
    ) -> tuple[Callable[[Request], Awaitable[Response]], Callable[[Request], Awaitable[Response]]]:
        """Return the endpoints that show a form and that submit it."""

        async def post(request: Request, visitor: Visitor) -> Response:
            form = await read_form(request)
            check_csrf(form, visitor)
            done = await submit(self._as(visitor), path_of(request), form)
            if isinstance(done, Page):
                return await self.show(request, done, visitor)
            links = links_of(request)
            return RedirectResponse(links(*done.segments, **{DONE: done.notice}), 303)

        return self.page(make), self.guarded(post)

    def live(self, make: MakePage, news: NewsOf | None) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint that follows the live part of a page."""

        async def follow(request: Request, visitor: Visitor) -> Response:
            api, path, links = self._as(visitor), path_of(request), links_of(request)
            shared = self.api.state.outlast_api
            engine = shared.engine()
            release = ApiCall(shared, engine, visitor.caller).begin_waiting()

            async def read() -> str:
                page = await make(api, path, request.query_params)
                return await run_in_threadpool(render_live, page, links, visitor.caller)

            return LiveStream(
                self._parts,
                (*rights_of(visitor, request), request.scope["path"], request.url.query),
                read,
                every_tick if news is None else lambda: news(api, path),
                engine.shutdown,
                seen=request.headers.get("last-event-id", ""),
                send_seconds=engine.settings.api_send_timeout,
                release=release,
            )

        return self.guarded(follow)

    def guarded(
        self, endpoint: Callable[[Request, Visitor], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint for visitors that are known. Answer errors as pages."""

        async def answer(request: Request) -> Response:
            visitor: Visitor | None = None
            try:
                visitor = await self.visitors.visitor(request)
                if visitor is None:
                    return self._sign_in_first(request)
                return await endpoint(request, visitor)
            except Problem as problem:
                return await self.problem(request, problem.status, problem.document(), visitor)
            except Refusal as refusal:
                return await self.problem(request, refusal.status, _in_pages(refusal), visitor)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                log.exception("Failed to show a page.")
                document = Problem(
                    500, "The server failed to show this page.", next="See the log of the server."
                ).document()
                return await self.problem(request, 500, document, visitor)

        return answer

    async def show(
        self, request: Request, page: Page, visitor: Visitor | None, *, live_url: str | None = None
    ) -> Response:
        """Answer with a whole page."""
        links = links_of(request)
        facts = {
            "visitor": visitor,
            CSRF: "" if visitor is None else visitor.csrf,
            "can_sign_out": self.visitors.sign_in_is_ours,
            "here": request.scope["path"].removeprefix(links.root).strip("/").partition("/")[0],
            "live_url": live_url,
            "notice": NOTICES.get(request.query_params.get(DONE, ""), ""),
        }
        caller = None if visitor is None else visitor.caller
        html = await run_in_threadpool(render_page, page, links, caller, **facts)
        response = HTMLResponse(html, page.status)
        if visitor is not None and visitor.cookie not in request.cookies.values():
            set_cookie(request, response, visitor.cookie)
        return response

    async def problem(
        self,
        request: Request,
        status: int,
        document: Mapping[str, Any],
        visitor: Visitor | None,
    ) -> Response:
        """Answer with a page that describes a problem."""
        page = Page(
            str(document.get("title", "Error")),
            "problem.html",
            {"document": document, "back": _back(request, visitor)},
            status,
        )
        return await self.show(request, page, visitor)

    def _as(self, visitor: Visitor) -> CallerApi:
        return CallerApi(self.api, visitor.caller)

    def _sign_in_first(self, request: Request) -> Response:
        links = links_of(request)
        if request.method != "GET" or request.headers.get("accept") == LiveStream.media_type:
            return Response("Sign in first.", 401, media_type="text/plain")
        path = request.scope["path"].removeprefix(links.root)
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(links("login", next=path + query), 303)

    def _live_url(self, request: Request) -> str:
        links = links_of(request)
        path = request.scope["path"].removeprefix(links.root)
        query = [
            (name, value) for name, value in request.query_params.multi_items() if name != DONE
        ]
        text = str(QueryParams(query))
        return f"{links.root}/live{path}" + (f"?{text}" if text else "")


def links_of(request: Request) -> Links:
    """Return the address builder of this mount."""
    return Links(str(request.scope.get("root_path", "")))


def path_of(request: Request) -> Path:
    """Return the decoded parameters of the path. Raise Problem 404 for one that is no text."""
    try:
        return {name: decoded(value) for name, value in request.path_params.items()}
    except ValueError:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.") from None


def rights_of(visitor: Visitor, request: Request) -> tuple[str, ...]:
    """Return what decides what a visitor sees. Visitors with equal rights share a reader."""
    caller = visitor.caller
    is_own = caller.role.value == "submitter"
    root = str(request.scope.get("root_path", ""))
    return (caller.role.value, caller.name if is_own else "", root)


def _in_pages(refusal: Refusal) -> Mapping[str, Any]:
    """Return the problem of a refusal, with what to do next in this UI instead of in the API."""
    document = refusal.document
    if document.get("error") != "UnknownRun":
        return document
    detail = f"No run has the id {document['run']!r}."
    return {**document, "detail": detail, "next": "Check the id in the Runs list."}


def _back(request: Request, visitor: Visitor | None) -> str | None:
    if visitor is None:
        return None
    links = links_of(request)
    segments = request.scope["path"].removeprefix(links.root).strip("/").split("/")
    if len(segments) > 2 and segments[0] == "runs":
        return f"{links.root}/{segments[0]}/{segments[1]}"
    return links("runs")
