"""What an HTTP call comes to: an answer, or an exception that says whether it happened.

    OutlastError
    └── HTTPFailure
        ├── HTTPNotSent     nothing was sent: it did not happen
        ├── HTTPRefused     the answer says that it was not done: it did not happen
        └── HTTPUnclear     no answer, or one that does not say: nobody knows

A server that refuses a stale fence is `StaleFence`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlast.errors import OutlastError

Meaning = Literal["happened", "refused", "unclear"]
"""What a status says of the act."""

BODY_SHOWN_MAX = 2000
"""Characters of a body that an exception keeps."""

_UNCLEAR = frozenset({301, 302, 408, 409, 499})
_HAPPENED = frozenset({303, 304})


def meaning(status: int, statuses: Mapping[int, Meaning] | None = None) -> Meaning:
    """What a status means, unless `statuses` says otherwise.

    - 2xx, 303 and 304: it happened.
    - 4xx but for 408, 409 and 499, and 300, 305 to 308: it did not. A redirect is not followed: it would take the headers elsewhere.
    - Anything else, like 5xx: unclear. So is 409: it may be a conflict, or the same key under way.
    """
    if statuses is not None and status in statuses:
        return statuses[status]
    if 200 <= status < 300 or status in _HAPPENED:
        return "happened"
    if 300 <= status < 500 and status not in _UNCLEAR:
        return "refused"
    return "unclear"


@dataclass(frozen=True)
class HTTPAnswer:
    """An answer, as it is recorded. `headers` (lower case) are those that were to be kept."""

    status: int
    headers: dict[str, str]
    body: str = ""
    """Text if it is UTF-8, else base64."""
    is_base64: bool = False
    is_cut: bool = False
    """There was more of it than was to be kept."""

    @classmethod
    def of(
        cls, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False
    ) -> HTTPAnswer:
        try:
            return cls(status, headers, content.decode(), is_cut=is_cut)
        except UnicodeDecodeError:
            return cls(
                status, headers, base64.b64encode(content).decode(), is_base64=True, is_cut=is_cut
            )

    @property
    def content(self) -> bytes:
        """The body as it came, in bytes; only its beginning, if it `is_cut`."""
        return base64.b64decode(self.body) if self.is_base64 else self.body.encode()

    @property
    def text(self) -> str:
        """The body as text. ValueError if it is not UTF-8: then it is in `content`."""
        if self.is_base64:
            raise ValueError("the body is not UTF-8: its bytes are in .content.")
        return self.body

    def json(self) -> Any:
        """The body, read as JSON. ValueError if it is none, or was cut."""
        if self.is_cut:
            raise ValueError(
                "the body was longer than body_size_max, and was cut: it cannot be read as JSON."
            )
        return json.loads(self.content)


class HTTPFailure(OutlastError):
    """A call that was not answered as it should. `status` is 0 where there was no answer."""

    def __init__(self, method: str, url: str, status: int = 0, detail: str = "") -> None:
        self.method, self.url, self.status, self.detail = (
            method,
            url,
            status,
            detail[:BODY_SHOWN_MAX],
        )
        super().__init__(method, url, status, self.detail)

    def __str__(self) -> str:
        said = f"{self.status} {self.detail}".strip() if self.status else self.detail
        return f"{self.method} {self.url}: {self._means}{f' ({said})' if said else ''}."

    _means = "it failed"


class HTTPNotSent(HTTPFailure):
    """Nothing was sent: no connection came about, or the request cannot be made. It did not happen."""

    _means = "nothing was sent, so it did not happen"


class HTTPRefused(HTTPFailure):
    """The server answered that it has not done it. It did not happen."""

    _means = "the server refused it, so it did not happen"


class HTTPUnclear(HTTPFailure):
    """There was no answer, or one that does not say whether it happened."""

    _means = "nobody knows whether it happened"
