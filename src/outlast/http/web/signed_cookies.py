"""Make and check the cookies of visitors who signed in with a token.

A cookie is `name.expiry.nonce.mac`. The key is derived from the visitor's token, so a cookie is
valid wherever the token is known, and nowhere once it is removed. The token is not in it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

from outlast.http.rest.roles import Caller
from outlast.http.rest.tokens import Tokens

SESSION_SECONDS = 12 * 3600
PURPOSE = b"outlast ui session"
LENGTH_MAX = 1_000


def make_cookie(caller: Caller, token: bytes, tokens: Tokens, now: float | None = None) -> str:
    """Return the cookie of a caller who presented this token."""
    expiry = int((time.time() if now is None else now) + SESSION_SECONDS)
    name = urlsafe_b64encode(caller.name.encode()).decode()
    text = f"{name}.{expiry}.{secrets.token_urlsafe(18)}"
    return f"{text}.{_mac(tokens.key_of(token, PURPOSE), text)}"


def caller_in(cookie: str, tokens: Tokens, now: float | None = None) -> Caller | None:
    """Return whose cookie this is. None if it is forged or too old, or its token was removed."""
    text, _, mac = cookie.rpartition(".")
    parts = text.split(".")
    if len(cookie) > LENGTH_MAX or len(parts) != 3 or not cookie.isascii():
        return None
    try:
        name = urlsafe_b64decode(parts[0]).decode()
        expiry = int(parts[1])
    except ValueError:
        return None
    if expiry <= (time.time() if now is None else now):
        return None
    found: Caller | None = None
    for caller, key in tokens.keys_of(name, PURPOSE):
        if hmac.compare_digest(_mac(key, text), mac):
            found = caller
    return found


def csrf_token(cookie: str) -> str:
    """Return the token that the forms of a visitor carry. Only the visitor knows the cookie."""
    return hmac.digest(cookie.encode(), b"outlast ui form", "sha256").hex()


def _mac(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode(), "sha256").hex()
