"""Sign visitors in and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.http.rest.problems import Problem
from outlast.http.web.forms import check_csrf, read_form
from outlast.http.web.rendering import Page
from outlast.http.web.site import Site, links_of
from outlast.http.web.visitors import Visitor, delete_cookie, set_cookie


class SignIn:
    """The pages of a site that know visitors by a token."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response:
        """Show the form. The link that `outlast ui` prints fills it in."""
        token = request.query_params.get("token", "")[:1_000]
        return await self._form(request, request.query_params.get("next", ""), token=token)

    async def submit(self, request: Request) -> Response:
        """Sign in, and go where the visitor wanted to go."""
        try:
            form = await read_form(request)
            visitor = await self._site.visitors.sign_in(request, form["token"])
        except Problem as problem:
            return await self._site.problem(request, problem.status, problem.document(), None)
        if visitor is None:
            return await self._form(request, form["next"], is_wrong=True)
        target = links_of(request).root + _local(form["next"])
        response = RedirectResponse(target, 303)
        set_cookie(request, response, visitor.cookie)
        return response

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        """Delete the visitor's cookie."""
        check_csrf(await read_form(request), visitor)
        response = RedirectResponse(links_of(request)("login"), 303)
        delete_cookie(request, response)
        return response

    async def _form(
        self, request: Request, then: str, *, token: str = "", is_wrong: bool = False
    ) -> Response:
        facts = {"token": token, "next": _local(then), "wrong": is_wrong}
        page = Page("Sign in", "login.html", facts, 401 if is_wrong else 200)
        return await self._site.show(request, page, None)


def _local(path: str) -> str:
    """Return a path of this UI. Anything else, such as another site, becomes its first page."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isascii()
    return path if is_ours and path.isprintable() and "\\" not in path else "/"
