"""Route by the path as it was sent, so that an id may contain a slash.

Servers decode the path. A decoded "%2F" would separate two segments.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send


class EncodedPaths:
    """Give the app the encoded path. Its parameters must be decoded by `decoded`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, **encoded(scope)}
        await self.app(scope, receive, send)


def encoded(scope: Any) -> dict[str, str]:
    """Return `path` and `root_path` of a request in their encoded form."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    raw = bytes(scope.get("raw_path") or b"").decode("latin-1")
    # A middleware may have changed the path alone.
    if unquote(raw) != path:
        raw = quote(path)
    if not path.startswith(root):
        return {"path": raw, "root_path": quote(root)}
    prefix = "/".join(raw.split("/")[: root.count("/") + 1])
    if unquote(prefix) != root:
        prefix, raw = quote(root), quote(path)
    return {"path": raw, "root_path": prefix}


def decoded(segment: str) -> str:
    """Return a segment of an encoded path as text. Raise ValueError if it is not UTF-8."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("it is not percent-encoded UTF-8") from None


def quoted(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")
