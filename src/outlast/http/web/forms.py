"""Read forms, and refuse forms submitted by another site."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from outlast.http.rest.problems import Problem
from outlast.http.web.visitors import Visitor

BYTES_MAX = 1_000_000
FIELDS_MAX = 2_000
SECONDS_MAX = 30.0
CSRF = "csrf"
_AGAIN = "Open the page again, and submit its form."


class Form(Mapping[str, str]):
    """The fields of a form. A missing field is empty."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields
        self._by_name = dict(reversed(fields))

    def __getitem__(self, name: str) -> str:
        return self._by_name.get(name, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for one, value in self._fields if one == name]


def check_origin(request: Request) -> None:
    """Raise Problem 403 unless a page of this site made the request."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    has_origin = origin is not None and urlsplit(origin).netloc.lower() == host.lower() != ""
    if (origin is not None and not has_origin) or site not in (None, "same-origin"):
        raise _refused("Another site submitted this form, or a proxy changed the header Host.")
    if origin is None and site is None:
        raise _refused("The browser does not say which site submitted this form.")


async def read_form(request: Request) -> Form:
    """Return the form of a page of this site. Raise Problem for any other body."""
    check_origin(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "The request is not a form.", next=_AGAIN)
    body = b""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BYTES_MAX:
                    raise Problem(
                        413,
                        f"The form is longer than {BYTES_MAX:,} bytes.",
                        next="Send large values with the HTTP API.",
                    )
        return Form(
            parse_qsl(
                body.decode(),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=FIELDS_MAX,
            )
        )
    except (ValueError, TimeoutError):
        raise Problem(400, "The form could not be read.", next=_AGAIN) from None


def check_csrf(form: Form, visitor: Visitor) -> None:
    """Raise Problem 403 if the form was not made for this visitor."""
    if not hmac.compare_digest(form[CSRF].encode(), visitor.csrf.encode()):
        raise _refused("This form belongs to another visitor, or to a session that has ended.")


def _refused(detail: str) -> Problem:
    return Problem(403, detail, next=_AGAIN)
