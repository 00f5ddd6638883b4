"""Render pages: templates with autoescape, and what they call."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from outlast.codec.readable import span
from outlast.http.rest.roles import Caller, Role
from outlast.http.web.values import Budget, clip, plain, text_of

LIVE_BLOCK = "live"
STATIC = {"outlast.css": "text/css", "outlast.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Page(NamedTuple):
    """A page: its title, its template, and what this shows."""

    title: str
    template: str
    facts: dict[str, Any]
    status: int = 200


class Links:
    """Make the addresses of one mount. Every segment is percent-encoded."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def __call__(self, *segments: Any, **query: Any) -> str:
        path = "/".join(quote(str(one), safe="") for one in segments)
        given = [(name, value) for name, value in query.items() if value not in (None, "", [])]
        text = urlencode(given, doseq=True)
        return f"{self.root}/{path}" + (f"?{text}" if text else "")


def render_page(page: Page, links: Links, caller: Caller | None, **facts: Any) -> str:
    """Return a whole page as HTML. `facts` are those of its visitor."""
    template = _environment().get_template(page.template)
    return template.render(_context(page, links, caller), **facts)


def render_live(page: Page, links: Links, caller: Caller) -> str:
    """Return the live part of a page as HTML. It contains nothing of its visitor but the role."""
    template = _environment().get_template(page.template)
    # Undefined names are errors, so a template cannot use what only a visitor has here.
    context = template.new_context(_context(page, links, caller))
    return "".join(template.blocks[LIVE_BLOCK](context))


def static_file(name: str) -> bytes:
    """Return a file of the folder `static`."""
    return (files(__package__) / "static" / name).read_bytes()


@cache
def static_version(name: str) -> str:
    """Return a digest of a static file, for its address."""
    return hashlib.sha256(static_file(name)).hexdigest()[:12]


def _context(page: Page, links: Links, caller: Caller | None) -> dict[str, Any]:
    role = None if caller is None else caller.role
    return {
        "title": page.title,
        "url": links,
        "asset": lambda name: links("static", name, v=static_version(name)),
        "budget": Budget(),
        "sees_fleet": role in (Role.VIEWER, Role.OPERATOR),
        "operates": role is Role.OPERATOR,
        "acts": role in (Role.SUBMITTER, Role.OPERATOR),
        **page.facts,
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clip": clip,
        "plain": plain,
        "span": _span,
        "ago": _ago,
        "stamp": _stamp,
        "text": text_of,
        "count": lambda number, what: f"{number:,} {what}{'' if number == 1 else 's'}",
    }
    return environment


def moment_of(text: Any) -> float | None:
    """Return a time of a document as seconds. None if it has none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _span(seconds: Any) -> str:
    return span(seconds) if isinstance(seconds, (int, float)) else "-"


def _ago(text: Any, now: Any) -> str:
    then, today = moment_of(text), moment_of(now)
    return "" if then is None or today is None else span(max(0.0, today - then))


def _stamp(text: Any) -> Markup:
    """Return a time as an element. The script shows it in the browser's time zone."""
    then = moment_of(text)
    if then is None:
        return Markup("-")
    text = str(text)[:19].replace("T", " ") + " UTC"
    return Markup('<time datetime="{}">{}</time>').format(escape(text), text)
