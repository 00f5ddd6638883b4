"""Recognise bearer tokens in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import cast

from outlast.errors import SettingsError
from outlast.http.rest.roles import Caller, Role

TOKEN_LENGTH_MIN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SEPARATOR = re.compile(r"[\s,]+")


class Tokens:
    """The callers by their tokens. Only digests of the tokens are kept."""

    def __init__(self, callers: Iterable[tuple[Caller, str]]) -> None:
        self._digests: dict[bytes, Caller] = {}
        roles: dict[str, Role] = {}
        for caller, token in callers:
            _check(caller.name, token)
            if roles.setdefault(caller.name, caller.role) is not caller.role:
                raise SettingsError(
                    f"api_tokens: {caller.name!r} has two roles. Use a name for each role."
                )
            if self._digests.setdefault(_digest(token.encode()), caller) != caller:
                raise SettingsError(
                    f"api_tokens: the token of {caller.name!r} belongs to another name too. Make "
                    "one for each: openssl rand -hex 32"
                )

    @classmethod
    def parse(cls, tokens: str | Iterable[str]) -> Tokens:
        """Read items like "name:role:token", in one text by commas or lines, or in a list.

        Raise SettingsError for a malformed item. No message shows a token.
        """
        items = _SEPARATOR.split(tokens.strip()) if isinstance(tokens, str) else list(tokens)
        return cls(_parsed(item, number) for number, item in enumerate(items, 1) if item)

    def __len__(self) -> int:
        return len(self._digests)

    def caller(self, token: bytes) -> Caller | None:
        """Return the caller of a token.

        Compare it with every token, so that timing reveals nothing.
        """
        given = _digest(token)
        found: Caller | None = None
        for digest, caller in self._digests.items():
            if hmac.compare_digest(digest, given):
                found = caller
        return found

    def keys_of(self, name: str, purpose: bytes) -> Iterator[tuple[Caller, bytes]]:
        """Yield a key for each token of a name. The key does not reveal the token."""
        for digest, caller in self._digests.items():
            if caller.name == name:
                yield caller, hmac.digest(digest, purpose, "sha256")

    def key_of(self, token: bytes, purpose: bytes) -> bytes:
        """Return the key that `keys_of` yields for a token."""
        return hmac.digest(_digest(token), purpose, "sha256")


def _parsed(item: str, number: int) -> tuple[Caller, str]:
    parts = item.split(":", 2)
    if len(parts) != 3:
        raise SettingsError(
            f"api_tokens: item {number} is not name:role:token, like ann:operator:4f1c…. "
            f"Roles: {', '.join(Role)}."
        )
    name, role, token = parts
    return Caller(name, cast("Role", role)), token


def _check(name: str, token: str) -> None:
    if len(token) < TOKEN_LENGTH_MIN:
        raise SettingsError(
            f"api_tokens: the token of {name!r} is shorter than {TOKEN_LENGTH_MIN} characters. "
            "Make one with: openssl rand -hex 32"
        )
    if not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"api_tokens: the token of {name!r} has a character that a bearer token cannot have. "
            "Make one with: openssl rand -hex 32"
        )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
